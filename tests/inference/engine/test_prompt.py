import math
import re
from itertools import pairwise

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from inference.engine.fill_in import FillIn, FimMarkers, Layout
from inference.engine.prompt import Prompt, PromptBuilder, _cut_front, build_explanation
from inference.errors import InvalidRequestError
from inference.healing.covering import CoveringTree, Rule
from inference.healing.heal_point import encode_text
from inference.model.sampler import CrossingScores, SampleRequest, Sampling, choose
from inference.protocol.completion import CompletionRequest, Explanation, Healing
from tests.support.samplers import build_rows
from tests.support.toys import (
    FIM_NAMES,
    KINDS,
    ToyTokenizer,
    build_prompts,
    load_toy,
    texts,
    toy_tokenizer,
)

_LAYOUTS = [layout for layout in Layout if layout is not Layout.NONE]
_PREFIX, _SUFFIX = "def walk(node):\n    return node.nex", "walk(None)\n"


def test_without_a_middle_marker_the_suffix_comes_first_and_the_prefix_marker_last() -> None:
    toy = toy_tokenizer("qwen")
    prefix_id, suffix_id = (toy.vocabulary.special_tokens[name] for name in (FIM_NAMES[0], FIM_NAMES[2]))
    prompts = PromptBuilder(load_toy(toy), FillIn(FimMarkers(prefix_id, suffix_id, None), Layout.SPM))

    prompt = prompts.build(CompletionRequest(_PREFIX, _SUFFIX), 256)

    assert prompt.context_ids[1:] == (suffix_id, *toy.encode(_SUFFIX), prefix_id, *prompt.kept_ids)


@pytest.mark.parametrize(("suffix", "reads"), [("", True), (" \n\t\n", True), (_SUFFIX, False)])
def test_without_a_suffix_or_a_model_that_reads_it_there_are_no_markers(suffix: str, reads: bool) -> None:
    toy = toy_tokenizer("qwen")
    prompts = build_prompts(toy) if reads else PromptBuilder(load_toy(toy))

    prompt = prompts.build(CompletionRequest(_PREFIX, suffix), 256)

    assert prompt.context_ids[1:] == prompt.kept_ids


def _count_tokens_that_spell(tokens: set[bytes], data: bytes) -> int:
    """Returns the largest number of tokens that spell the bytes, by brute force; -1 if none do."""
    most = [0] + [-1] * len(data)
    for end in range(1, len(data) + 1):
        for start in range(max(end - 16, 0), end):
            if most[start] >= 0 and data[start:end] in tokens:
                most[end] = max(most[end], most[start] + 1)
    return most[-1]


def _count_spelling_slowly(toy: ToyTokenizer, covering: CoveringTree) -> int:
    """Returns the largest number of tokens that can spell only healed bytes: on a path, and for its remaining bytes."""
    tree, tokens = covering.tree.with_chain((0,)), set(toy.vocabulary.token_bytes) - {b""}
    counts = [0]
    for crossing in covering.crossings:
        num_on_path, num_more = len(tree.find_path(crossing.node)), 0
        if crossing.rule is Rule.SPELL:
            num_more = _count_tokens_that_spell(tokens, crossing.remaining_bytes)
        elif crossing.rule is Rule.EXTEND:
            num_more = int(crossing.remaining_bytes in tokens)
        counts.append(num_on_path + num_more)
    return max(counts)


_TOO_LONG = (
    r"the (\d+) bytes before the cursor that are generated again may take (\d+) tokens, and the start tokens take "
    r"(\d+), but the prompt has room for (\d+); set healing to none"
)


@pytest.mark.parametrize("kind", ["qwen", "llama2"])
@example("n", 60, "", Healing.GREEDY, Layout.PSM, 8)
@example("aaaé👩\u200d💻 <|fim_prefix|>returnreturn", 1, "aaaaaaa<|endoftext|>", Healing.GREEDY, Layout.PSM, 62)
@given(
    prefix=texts,
    repeats=st.sampled_from([1, 1, 8, 40]),
    suffix=texts,
    healing=st.sampled_from(Healing),
    layout=st.sampled_from(_LAYOUTS),
    max_tokens=st.integers(8, 120),
)
@settings(max_examples=3 * settings().max_examples)
def test_a_prompt_with_its_healed_bytes_fits_or_is_refused(
    kind: str, prefix: str, repeats: int, suffix: str, healing: Healing, layout: Layout, max_tokens: int
) -> None:
    toy = toy_tokenizer(kind)
    request = CompletionRequest(prefix * repeats, suffix * repeats, healing=healing)

    try:
        prompt = build_prompts(toy, layout).build(request, max_tokens)
    except InvalidRequestError as error:
        found = re.fullmatch(_TOO_LONG, str(error))
        assert found
        num_healed, num_spelling, num_start, room = map(int, found.groups())
        assert num_healed >= num_spelling
        assert num_spelling + num_start > room == max_tokens
        return

    num_spelling = _count_spelling_slowly(toy, prompt.covering)
    assert num_spelling <= prompt.num_spelling_tokens
    assert len(prompt.context_ids) + num_spelling <= max_tokens
    full = build_prompts(toy, layout)._heal(_cut_front(request.prefix, 16 * max_tokens), request)[0]
    assert full[len(full) - len(prompt.kept_ids) :] == prompt.kept_ids
    num_suffix = len(prompt.context_ids) - len(prompt.kept_ids) - 1
    if num_suffix and len(prompt.kept_ids) < len(full):  # the suffix is cut before the last quarter of the text
        assert len(prompt.kept_ids) > max_tokens // 4 // 2  # of which the cut, in blocks, leaves more than half


def test_the_suffix_is_cut_before_the_text_before_the_cursor() -> None:
    toy = toy_tokenizer("qwen")
    request = CompletionRequest("x = 1\n" * 3 + "n" * 60, "\ny = 2\n" * 40, healing=Healing.GREEDY)
    kept, sizes = set(), []

    for max_tokens in (200, 130, 100, 90, 78):
        prompt = build_prompts(toy).build(request, max_tokens)
        kept.add(prompt.kept_ids)
        sizes.append(len(prompt.context_ids) - len(prompt.kept_ids) - 1)

    assert len(kept) == 1
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] == 0  # no suffix, and no markers either


@pytest.mark.parametrize("num_typed", range(100, 200, 7))
def test_a_cut_context_is_the_end_of_the_text_and_uses_at_least_half_of_its_room(num_typed: int) -> None:
    toy = toy_tokenizer("qwen")
    text = "".join(f"name_{index} = {index}\n" for index in range(600))[: 8 * num_typed]

    prompt = build_prompts(toy).build(CompletionRequest(text, healing=Healing.NONE), 100)

    assert (100 - 25 - 1) // 2 < len(prompt.context_ids) <= 100
    assert text.endswith(toy.join(prompt.kept_ids).decode())


@pytest.mark.parametrize(
    ("healing", "healed", "rule"),
    [
        (Healing.NONE, b"", Rule.EXTEND),
        (Healing.SINGLE, None, Rule.EXTEND),
        (Healing.GREEDY, b".nex", Rule.SPELL),
    ],
)
def test_each_strategy_restricts_the_next_token_by_its_own_rule(
    healing: Healing, healed: bytes | None, rule: Rule
) -> None:
    toy = toy_tokenizer("qwen")

    prompt = build_prompts(toy).build(CompletionRequest(_PREFIX, healing=healing), 256)

    expected = toy.join(toy.encode(_PREFIX)[-1:]) if healed is None else healed
    [crossing] = prompt.covering.crossings
    assert prompt.healed == expected
    assert (crossing.node, crossing.remaining_bytes, crossing.rule) == (None, expected, rule)


@pytest.mark.parametrize("num_typed", [4000, 9000])  # shorter and longer than the part that is read
def test_the_window_moves_in_blocks(num_typed: int) -> None:
    """Otherwise every keystroke would shift the positions of all kept tokens."""
    toy = toy_tokenizer("qwen")
    prompts, text = build_prompts(toy), "".join(f"name_{index} = {index}\n" for index in range(600))
    ends = range(num_typed, num_typed + 100, 4)

    firsts = [prompts.build(CompletionRequest(text[:end]), 600).kept_ids[:8] for end in ends]

    assert sum(before != after for before, after in pairwise(firsts)) <= 2


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
