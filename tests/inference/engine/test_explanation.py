import math
import re

import pytest
import torch

from inference.engine.explanation import build_explanation
from inference.engine.prompt import Prompt
from inference.healing.heal_point import encode_text
from inference.model.sampler import CrossingScores, SampleRequest, Sampling, choose
from inference.protocol.completion import CompletionRequest, Explanation, Healing
from tests.support.samplers import build_rows
from tests.support.toys import KINDS, build_prompts, toy_tokenizer

_PREFIX = "def walk(node):\n    return node.nex"

kinds = pytest.mark.parametrize("kind", KINDS)


def _explain(
    kind: str, prefix: str = _PREFIX, healing: Healing = Healing.EXACT, likely: str | None = None
) -> tuple[Prompt, CrossingScores, Explanation]:
    """A prompt, scores by random logits, and their explanation. `likely`: a special token that is chosen for sure."""
    toy = toy_tokenizer(kind)
    prompts = build_prompts(toy)
    prompt = prompts.build(CompletionRequest(prefix, healing=healing), 256)
    tree = prompt.tree
    logits = torch.randn(1 + len(tree.branch_ids), toy.num_rows, generator=torch.Generator().manual_seed(1))
    if likely is not None:
        logits[:, toy.vocabulary.special_tokens[likely]] = 99.0
    rows, sampling = build_rows("numpy", toy, logits), Sampling(0.0, 1.0)
    result = choose(SampleRequest(tree, prompt.covering.crossings, rows, sampling, wants_scores=True))
    assert result.scores is not None
    return prompt, result.scores, build_explanation(prompts.tokenizer, prompt, result)


def _unescape(*shown: str) -> bytes:
    """The bytes of texts in which bytes that are not UTF-8 are escaped as \\xNN."""
    return re.sub(rb"\\x([0-9a-f]{2})", lambda found: bytes([int(found[1], 16)]), "".join(shown).encode())


@kinds
@pytest.mark.parametrize("healing", Healing)
@pytest.mark.parametrize("prefix", ["", "é", "x = '😀", _PREFIX])
def test_the_tokens_spell_the_text_whatever_was_healed(kind: str, healing: Healing, prefix: str) -> None:
    """The dummy prefix is not shown: it was not typed."""
    prompt, _, explanation = _explain(kind, prefix, healing)

    healed = prefix.encode()[len(prefix.encode()) - prompt.num_healed_bytes :]
    assert _unescape(explanation.healed_bytes) == healed
    assert _unescape(*explanation.unhealed_tokens).endswith(healed)
    assert prefix.encode().endswith(_unescape(*explanation.kept_tail).lstrip() + healed)
    assert len(explanation.kept_tail) == min(len(prompt.kept_ids), 8)
    chosen = _unescape(*explanation.chosen_tokens)
    assert chosen.startswith(prompt.healed) or (healing is Healing.GREEDY and prompt.healed.startswith(chosen))


@kinds
def test_the_unhealed_tokens_are_those_of_the_text_after_the_kept_ones(kind: str) -> None:
    """Even where the healed bytes begin inside a word."""
    toy = toy_tokenizer(kind)
    for end in range(4, len(_PREFIX) + 1):
        prompt, _, explanation = _explain(kind, _PREFIX[:end])

        unhealed = encode_text(toy.encoder, _PREFIX[:end])[len(prompt.kept_ids) :]

        assert explanation.unhealed_tokens == tuple(toy.join([token_id]).decode() for token_id in unhealed)


@kinds
@pytest.mark.parametrize("healing", Healing)
def test_the_nodes_are_the_tree_with_the_scores_of_their_crossings_and_the_choice_is_the_best(
    kind: str, healing: Healing
) -> None:
    prompt, scores, explanation = _explain(kind, healing=healing)

    nodes = explanation.nodes
    assert len(nodes) == 1 + len(prompt.tree.branch_ids)
    assert (nodes[0].parent, nodes[0].token, nodes[0].num_covered_bytes) == (None, "", 0)
    for node in nodes[1:]:
        assert node.parent is not None
        assert node.num_covered_bytes == nodes[node.parent].num_covered_bytes + len(node.token.encode())
    crossed = {}
    for crossing, token_id, *numbers in zip(
        prompt.covering.crossings, scores.best_ids, scores.log_masses, scores.best_log_probs, strict=True
    ):
        token = toy_tokenizer(kind).vocabulary.token_bytes[token_id].decode(errors="backslashreplace")
        crossed[0 if crossing.node is None else crossing.node + 1] = (token, *numbers)
    for index, node in enumerate(nodes):
        assert (node.best_token, node.log_mass, node.best_log_prob) == crossed.get(index, (None, None, None))
    assert 0 < sum(math.exp(node.log_mass) for node in nodes if node.log_mass is not None) < 1.001
    best = max(nodes, key=lambda node: -math.inf if node.best_log_prob is None else node.best_log_prob)
    assert explanation.chosen_tokens[-1] == best.best_token


def test_special_tokens_are_shown_by_name() -> None:
    _, _, explanation = _explain("qwen", "x", Healing.NONE, likely="<|endoftext|>")

    assert explanation.chosen_tokens == ("<|endoftext|>",)
