import dataclasses
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.engine.prompt import FimMarkers, FimOrder, find_fim_markers
from inference.healing.covering import Rule
from inference.protocol.completion import CompletionRequest, Healing
from tests.support.toys import FIM_NAMES, KINDS, SENTENCEPIECE_KINDS, ToyTokenizer, build_prompts, texts, toy_tokenizer
from trie_cache.vocabulary import Vocabulary

kinds = pytest.mark.parametrize("kind", KINDS)
_PREFIX, _SUFFIX = "def walk(node):\n    return node.nex", "\n\nwalk(None)\n"


def _ids(toy: ToyTokenizer) -> tuple[int, int, int]:
    """Prefix, suffix and middle marker."""
    prefix, middle, suffix = (toy.vocabulary.special_tokens[name] for name in FIM_NAMES)
    return prefix, suffix, middle


@kinds
def test_the_partial_word_leaves_the_prefix_section_and_is_spelled_after_the_middle_marker(kind: str) -> None:
    toy = toy_tokenizer(kind)
    prefix_id, suffix_id, middle_id = _ids(toy)

    prompt = build_prompts(toy).build(CompletionRequest(_PREFIX, _SUFFIX), 256)

    ids = prompt.context_ids
    assert ids[1] == prefix_id
    assert ids[-1] == middle_id
    assert prompt.healed.decode().endswith("nex")
    open_text = toy.join(ids[2 : ids.index(suffix_id)]).decode()
    assert (open_text + prompt.healed.decode()).removeprefix(" ") == _PREFIX
    assert toy.join(ids[ids.index(suffix_id) + 1 : -1]).decode() == _SUFFIX


def test_suffix_first_puts_the_kept_tokens_behind_the_middle_marker() -> None:
    toy = toy_tokenizer("qwen")
    prefix_id, suffix_id, middle_id = _ids(toy)

    prompt = build_prompts(toy, FimOrder.SUFFIX_PREFIX).build(CompletionRequest(_PREFIX, _SUFFIX), 256)

    start = prompt.context_ids[:1]
    assert prompt.context_ids == (*start, prefix_id, suffix_id, *toy.encode(_SUFFIX), middle_id, *prompt.kept_ids)


def test_a_model_without_a_middle_marker_reads_the_suffix_and_then_the_prefix() -> None:
    toy = toy_tokenizer("qwen")
    prefix_id, suffix_id, _ = _ids(toy)
    prompts = dataclasses.replace(build_prompts(toy), markers=FimMarkers(prefix_id, suffix_id, None))

    prompt = prompts.build(CompletionRequest(_PREFIX, _SUFFIX), 256)

    assert prompt.context_ids[1:] == (suffix_id, *toy.encode(_SUFFIX), prefix_id, *prompt.kept_ids)


@pytest.mark.parametrize("suffix", ["", " \n\t\n"])
def test_an_empty_suffix_needs_no_markers(suffix: str) -> None:
    toy = toy_tokenizer("qwen")

    prompt = build_prompts(toy).build(CompletionRequest(_PREFIX, suffix), 256)

    assert prompt.context_ids[1:] == prompt.kept_ids


def test_a_model_without_markers_sees_no_suffix() -> None:
    toy = toy_tokenizer("qwen")
    prompts = dataclasses.replace(build_prompts(toy), markers=None)

    prompt = prompts.build(CompletionRequest(_PREFIX, _SUFFIX), 256)

    assert prompt.context_ids[1:] == prompt.kept_ids


@kinds
def test_markers_in_the_text_are_text_and_the_prompts_own_are_the_only_ones(kind: str) -> None:
    toy = toy_tokenizer(kind)
    prefix_id, suffix_id, middle_id = _ids(toy)
    look_alikes = "".join(FIM_NAMES)

    prompt = build_prompts(toy).build(CompletionRequest(look_alikes + " x", look_alikes), 512)

    special = [token_id for token_id in prompt.context_ids[1:] if token_id in toy.vocabulary.special_ids]
    assert special == [prefix_id, suffix_id, middle_id]


@pytest.mark.parametrize("kind", SENTENCEPIECE_KINDS)
def test_a_suffix_gets_no_blank_of_the_tokenizers_own(kind: str) -> None:
    toy = toy_tokenizer(kind)
    _, suffix_id, middle_id = _ids(toy)

    ids = build_prompts(toy).build(CompletionRequest("x = ", "foo)"), 256).context_ids

    assert toy.join(ids[ids.index(suffix_id) + 1 : ids.index(middle_id)]) == b"foo)"


@kinds
@pytest.mark.parametrize("healing", Healing)
@given(prefix=texts, repeats=st.sampled_from([1, 1, 40]), suffix=texts, max_tokens=st.integers(40, 200))
def test_a_prompt_and_its_healing_fit_where_they_must(
    kind: str, healing: Healing, prefix: str, repeats: int, suffix: str, max_tokens: int
) -> None:
    toy = toy_tokenizer(kind)
    request = CompletionRequest(prefix * repeats, suffix * repeats, healing=healing)

    prompt = build_prompts(toy).build(request, max_tokens)

    depths = prompt.covering.build_tree(prompt.context_ids).find_depths()
    num_spelled = max(depths, default=0)
    if prompt.kept_ids:
        assert len(prompt.context_ids) + num_spelled <= max_tokens


@kinds
@pytest.mark.parametrize("healing", Healing)
@given(prefix=texts)
def test_kept_tokens_and_healed_bytes_are_the_prefix(kind: str, healing: Healing, prefix: str) -> None:
    toy = toy_tokenizer(kind)

    prompt = build_prompts(toy).build(CompletionRequest(prefix, healing=healing), 4096)

    spelled = toy.join(prompt.kept_ids) + prompt.healed
    assert spelled in (prefix.encode(), (toy.encoder.find_dummy_prefix(prefix) + prefix).encode())
    assert prompt.num_healed_bytes == min(len(prompt.healed), len(prefix.encode()))


@pytest.mark.parametrize(
    ("healing", "healed", "rule"),
    [
        (Healing.NONE, b"", Rule.EXTEND),
        (Healing.SINGLE, None, Rule.EXTEND),
        (Healing.GREEDY, b".nex", Rule.SPELL),
    ],
)
def test_each_strategy_binds_the_next_token_in_its_own_way(healing: Healing, healed: bytes | None, rule: Rule) -> None:
    toy = toy_tokenizer("qwen")

    prompt = build_prompts(toy).build(CompletionRequest(_PREFIX, healing=healing), 256)

    expected = toy.join(toy.encode(_PREFIX)[-1:]) if healed is None else healed
    [crossing] = prompt.covering.crossings
    assert prompt.healed == expected
    assert (crossing.node, crossing.remaining_bytes, crossing.rule) == (None, expected, rule)


@pytest.mark.parametrize("num_typed", [4000, 9000])  # fits the characters that are looked at, and does not
def test_the_window_moves_in_blocks(num_typed: int) -> None:
    """Or every keystroke would shift the positions of all that is kept."""
    toy = toy_tokenizer("qwen")
    prompts, text = build_prompts(toy), "".join(f"name_{index} = {index}\n" for index in range(600))
    ends = range(num_typed, num_typed + 100, 4)

    firsts = [prompts.build(CompletionRequest(text[:end]), 600).kept_ids[:8] for end in ends]

    assert sum(before != after for before, after in pairwise(firsts)) <= 2


def test_a_long_prefix_is_cut_at_the_front() -> None:
    toy = toy_tokenizer("qwen")
    text = "".join(f"name_{index} = {index}\n" for index in range(3000))

    prompt = build_prompts(toy).build(CompletionRequest(text), 600)

    assert 300 < len(prompt.context_ids) <= 600
    assert text.endswith((toy.join(prompt.kept_ids) + prompt.healed).decode())


@pytest.mark.parametrize(
    "names",
    [
        ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
        ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
        ("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),
        ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),
        ("▁<PRE>", "▁<SUF>", "▁<MID>"),
        ("[PREFIX]", "[SUFFIX]"),
    ],
)
def test_every_familys_markers_are_found(names: tuple[str, ...]) -> None:
    vocabulary = Vocabulary.from_tokens({0: b"a"}, {name: 1 + index for index, name in enumerate(names)})

    assert find_fim_markers(vocabulary) == FimMarkers(1, 2, 3 if len(names) == 3 else None)


def test_some_of_the_markers_are_none() -> None:
    vocabulary = Vocabulary.from_tokens({0: b"a"}, {"<fim_prefix>": 1, "<fim_suffix>": 2})

    assert find_fim_markers(vocabulary) is None
