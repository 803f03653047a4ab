import re
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from inference.engine.layout import FillIn, FimMarkers, Layout
from inference.engine.prompt import PromptBuilder, _cut_front
from inference.errors import InvalidRequestError
from inference.healing.covering import CoveringTree, Rule
from inference.protocol.completion import CompletionRequest, Healing
from tests.support.toys import (
    FIM_NAMES,
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
