"""A readable explanation of what healing did at the cursor."""

import math

from inference.engine.prompt import Prompt
from inference.healing.heal_point import encode_section
from inference.healing.loaded_tokenizer import LoadedTokenizer
from inference.model.sampler import SampleResult
from inference.protocol.completion import ExplainedNode, Explanation

_NUM_KEPT_SHOWN = 8


def build_explanation(tokenizer: LoadedTokenizer, prompt: Prompt, result: SampleResult) -> Explanation:
    """The told files, the kept tokens, the tree with the probability mass of each node's crossing, and the chosen path.

    `result`: that of the first choice.
    """
    scores, tree = result.scores, prompt.tree
    assert scores is not None, "an explanation asks for them"
    token_bytes = tokenizer.vocabulary.token_bytes
    masses = zip(prompt.covering.crossings, scores.log_masses.tolist(), strict=True)
    scored = {crossing.node: index for index, (crossing, mass) in enumerate(masses) if math.isfinite(mass)}
    nodes = []
    for node in (None, *range(len(tree.branch_ids))):
        parent = None if node is None else tree.parents[node]
        index = scored.get(node)
        nodes.append(
            ExplainedNode(
                parent=None if node is None else (0 if parent is None else parent + 1),
                token="" if node is None else _show(token_bytes[tree.branch_ids[node]]),
                num_covered_bytes=sum(len(token_bytes[tree.branch_ids[branch]]) for branch in tree.iter_path(node)),
                log_mass=None if index is None else float(scores.log_masses[index]),
                best_token=None if index is None else _name(tokenizer, int(scores.best_ids[index])),
                best_log_prob=None if index is None else float(scores.best_log_probs[index]),
            )
        )
    choice = result.choices[0]
    chosen = [_show(token_bytes[token_id]) for token_id in tree.spell_path(choice.crossing.node)]
    return Explanation(
        kept_tail=tuple(_name(tokenizer, token_id) for token_id in prompt.kept_ids[-_NUM_KEPT_SHOWN:]),
        healed_bytes=_show(prompt.healed[len(prompt.healed) - prompt.num_healed_bytes :]),
        nodes=tuple(nodes),
        chosen_tokens=(*chosen, _name(tokenizer, choice.token_id)),
        unhealed_tokens=tuple(_show(token_bytes[token_id]) for token_id in _encode_healed(tokenizer, prompt)),
        related=prompt.related.files,
    )


def _encode_healed(tokenizer: LoadedTokenizer, prompt: Prompt) -> tuple[int, ...]:
    """The tokens of the healed bytes as they stand. The common tokens before them are those of all continuations."""
    common_ids = prompt.covering.common_ids
    common = b"".join(tokenizer.vocabulary.token_bytes[token_id] for token_id in common_ids)
    try:
        return encode_section(tokenizer.encoder, (common + prompt.healed).decode())[len(common_ids) :]
    except UnicodeDecodeError:  # with `single`, the healed bytes may begin inside a code point
        return tokenizer.encoder.encode_beginning(prompt.healed)


def _name(tokenizer: LoadedTokenizer, token_id: int) -> str:
    for name, special_id in tokenizer.vocabulary.special_tokens.items():
        if special_id == token_id:
            return name
    return _show(tokenizer.vocabulary.token_bytes[token_id])


def _show(data: bytes) -> str:
    return data.decode(errors="backslashreplace")
