from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.engine.layout import Layout, find_line_split
from inference.protocol.completion import CompletionRequest
from tests.support.toys import FIM_NAMES, KINDS, ToyTokenizer, build_prompts, toy_tokenizer

_PREFIX, _SUFFIX = "def walk(node):\n    return node.nex", "walk(None)\n"


def _split(toy: ToyTokenizer, layout: Layout, prefix: str) -> tuple[bytes, bytes, bytes, bytes]:
    """Returns the prefix section, the suffix section, what follows the middle marker, and the healed bytes."""
    prompt = build_prompts(toy, layout).build(CompletionRequest(prefix, _SUFFIX), 512)
    prefix_id, middle_id, suffix_id = (toy.vocabulary.special_tokens[name] for name in FIM_NAMES)
    order = (suffix_id, prefix_id) if layout is Layout.SPM_LINE else (prefix_id, suffix_id)
    first, second, third = (prompt.context_ids.index(marker) for marker in (*order, middle_id))
    sections = prompt.context_ids[first + 1 : second], prompt.context_ids[second + 1 : third]
    before, after = reversed(sections) if layout is Layout.SPM_LINE else sections
    forced = prompt.context_ids[third + 1 :]
    assert first == 1  # after the start token
    assert before + forced == prompt.kept_ids
    return toy.join(before), toy.join(after), toy.join(forced), prompt.healed


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", [layout for layout in Layout if layout is not Layout.NONE])
def test_healed_bytes_are_not_in_the_prefix_section_but_after_the_middle_marker(kind: str, layout: Layout) -> None:
    before, after, forced, healed = _split(toy_tokenizer(kind), layout, _PREFIX)
    assert (forced + healed).decode().endswith("nex")  # the last kept tokens of a word stay with it
    assert (before + forced + healed).decode().removeprefix(" ") == _PREFIX
    assert after.decode() == _SUFFIX  # without a dummy prefix


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
    assert parts == (section, _SUFFIX.encode(), forced, b"ex")


@given(
    tokens=st.lists(st.sampled_from([b"a", b"\n", b"b\n", b"\nc", b"\n\n", b"d\ne"]), max_size=8),
    healed=st.sampled_from([b"", b"x", b"\n ", b"\n\n"]),
)
def test_the_split_is_the_last_boundary_before_the_line(tokens: list[bytes], healed: bytes) -> None:
    split = find_line_split(tuple(range(len(tokens))), healed, tokens)
    start = (b"".join(tokens) + healed).rfind(b"\n") + 1
    ends = [0, *accumulate(map(len, tokens))]
    assert split == max(number for number, end in enumerate(ends) if end <= start)
