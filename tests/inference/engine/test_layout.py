from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.engine.layout import Layout, find_line_split
from inference.protocol.completion import CompletionRequest, Healing
from tests.support.toys import FIM_NAMES, KINDS, ToyTokenizer, build_prompts, texts, toy_tokenizer

_SUFFIX = "\n\nwalk(None)\n"


def _split(
    toy: ToyTokenizer, layout: Layout, prefix: str, healing: Healing = Healing.EXACT
) -> tuple[bytes, bytes, bytes]:
    """Returns the prefix section, what follows the middle marker, and the healed bytes."""
    prompt = build_prompts(toy, layout).build(CompletionRequest(prefix, _SUFFIX, healing=healing), 512)
    prefix_id, middle_id, suffix_id = (toy.vocabulary.special_tokens[name] for name in FIM_NAMES)
    ids = prompt.context_ids
    section = ids[ids.index(prefix_id) + 1 :]
    section = section[: min(section.index(marker) for marker in (suffix_id, middle_id) if marker in section)]
    forced = ids[ids.index(middle_id) + 1 :]
    assert section + forced == prompt.kept_ids
    return toy.join(section), toy.join(forced), prompt.healed


@pytest.mark.parametrize(
    ("layout", "section", "forced"),
    [
        (Layout.PSM, b"a = 1\nb = 2\nc = foo", b".n"),  # the open word is not separated from its end
        (Layout.PSM_LINE, b"a = 1\nb = 2\n", b"c = foo.n"),
        (Layout.SPM_LINE, b"a = 1\nb = 2\n", b"c = foo.n"),
        (Layout.SPM, b"", b"a = 1\nb = 2\nc = foo.n"),
    ],
)
def test_each_layout_ends_the_prefix_section_elsewhere(layout: Layout, section: bytes, forced: bytes) -> None:
    parts = _split(toy_tokenizer("qwen"), layout, "a = 1\nb = 2\nc = foo.nex")

    assert parts == (section, forced, b"ex")


def test_the_suffix_comes_first_in_spm_line() -> None:
    toy = toy_tokenizer("qwen")
    prefix_id, middle_id, suffix_id = (toy.vocabulary.special_tokens[name] for name in FIM_NAMES)

    ids = build_prompts(toy, Layout.SPM_LINE).build(CompletionRequest("a = 1\nb = x", _SUFFIX), 512).context_ids

    first, second, third = (ids.index(marker) for marker in (suffix_id, prefix_id, middle_id))
    assert toy.join(ids[first + 1 : second]) == _SUFFIX.encode()
    assert toy.join(ids[second + 1 : third]) == b"a = 1\n"
    assert first == 1  # after the start token


def test_a_line_start_among_the_healed_bytes_counts_as_one() -> None:
    toy = toy_tokenizer("qwen")

    assert _split(toy, Layout.PSM_LINE, "a = 1\nb = 2\n  ") == (b"a = 1\nb = 2", b"\n", b"  ")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("healing", Healing)
@given(prefix=texts)
def test_the_forced_line_begins_at_a_token_boundary(kind: str, healing: Healing, prefix: str) -> None:
    section, forced, healed = _split(toy_tokenizer(kind), Layout.PSM_LINE, prefix, healing)

    assert len(section) <= (section + forced + healed).rfind(b"\n") + 1


@given(
    tokens=st.lists(st.sampled_from([b"a", b"\n", b"b\n", b"\nc", b"\n\n", b"d\ne"]), max_size=8),
    healed=st.sampled_from([b"", b"x", b"\n ", b"\n\n"]),
)
def test_the_split_is_the_last_boundary_before_the_line(tokens: list[bytes], healed: bytes) -> None:
    split = find_line_split(tuple(range(len(tokens))), healed, tokens)

    start = (b"".join(tokens) + healed).rfind(b"\n") + 1
    ends = [0, *accumulate(map(len, tokens))]
    assert split == max(number for number, end in enumerate(ends) if end <= start)


@pytest.mark.parametrize("layout", [Layout.PSM_LINE, Layout.SPM_LINE])
def test_the_prompt_up_to_the_marker_stays_while_a_line_is_typed(layout: Layout) -> None:
    toy = toy_tokenizer("qwen")
    middle_id = toy.vocabulary.special_tokens[FIM_NAMES[1]]
    typed = "    return node.next_one(a, b)"

    beginnings = set()
    for end in range(5, len(typed)):
        request = CompletionRequest("def walk(node):\n" + typed[:end], _SUFFIX)
        ids = build_prompts(toy, layout).build(request, 256).context_ids
        beginnings.add(ids[: ids.index(middle_id)])

    assert len(beginnings) == 1
