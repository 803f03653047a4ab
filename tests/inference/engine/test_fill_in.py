import json
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.config import EngineConfig
from inference.engine.fill_in import (
    FillIn,
    FimMarkers,
    Layout,
    MarkerMeasure,
    find_line_split,
    list_fill_ins,
    measure_markers,
)
from inference.errors import ModelError
from inference.model.loader import load_model
from inference.protocol.completion import CompletionRequest
from tests.inference.conftest import Memorised
from tests.support.toys import FIM_NAMES, KINDS, ToyTokenizer, build_prompts, toy_tokenizer
from trie_cache.trie import Vocabulary

_NAMES = {"<fim_prefix>": 1, "<fim_suffix>": 2, "<fim_middle>": 3, "<before>": 4, "<after>": 5, "<hole>": 6}
_KNOWN = Vocabulary.from_tokens({0: b"a"}, _NAMES)
_UNKNOWN = Vocabulary.from_tokens({0: b"a"}, {name: _NAMES[name] for name in ("<before>", "<after>", "<hole>")})
_OWN_NAMES = {"prefix": "<before>", "suffix": "<after>", "middle": "<hole>"}


def _write(folder: Path, fill_in: object) -> Path:
    (folder / "midtoken.json").write_text(json.dumps({"fill_in": fill_in}))
    return folder


@pytest.mark.parametrize(
    ("names", "layouts"),
    [
        (("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"), [Layout.PSM_LINE]),
        (("<fim_prefix>", "<fim_suffix>", "<fim_middle>"), [Layout.PSM_LINE, Layout.SPM_LINE]),
        (("<fim-prefix>", "<fim-suffix>", "<fim-middle>"), [Layout.PSM_LINE]),
        (("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"), [Layout.PSM_LINE]),
        (("▁<PRE>", "▁<SUF>", "▁<MID>"), [Layout.PSM_LINE]),
        (("<[fim-prefix]>", "<[fim-suffix]>", "<[fim-middle]>"), [Layout.SPM_LINE]),
        (("▁<AIX-SPAN-PRE>", "▁<AIX-SPAN-POST>", "▁<AIX-SPAN-MIDDLE>"), [Layout.SPM]),
        (("[PREFIX]", "[SUFFIX]"), [Layout.SPM]),
        (("<fim_prefix>", "<fim_suffix>"), []),  # not all of a family's markers
        (("<before>", "<after>", "<hole>"), []),
    ],
)
def test_without_a_file_the_family_decides(names: tuple[str, ...], layouts: list[Layout], tmp_path: Path) -> None:
    vocabulary = Vocabulary.from_tokens({0: b"a"}, {name: 1 + index for index, name in enumerate(names)})
    markers = FimMarkers(1, 2, 3 if len(names) == 3 else None)
    expected = tuple(FillIn(markers, layout) for layout in layouts)

    assert list_fill_ins("auto", tmp_path, vocabulary) == (expected, False)
    if layouts:  # a folder's file that names the same markers, as that of a GGUF file does, says no more
        folder = _write(tmp_path, dict(zip(("prefix", "suffix", "middle"), names, strict=False)))
        assert list_fill_ins("auto", folder, vocabulary) == (expected, False)
    assert markers.num_tokens == len(names)


@pytest.mark.parametrize(
    ("fill_in", "expected"),
    [
        ({"layout": "spm"}, [FillIn(FimMarkers(1, 2, 3), Layout.SPM)]),
        ({"layout": "spm_line"}, [FillIn(FimMarkers(1, 2, 3), Layout.SPM_LINE)]),
        ({"layout": "none"}, []),
        (_OWN_NAMES, [FillIn(FimMarkers(4, 5, 6), Layout.PSM_LINE)]),
        ({**_OWN_NAMES, "layout": "psm"}, [FillIn(FimMarkers(4, 5, 6), Layout.PSM)]),
        ({"prefix": "<before>", "suffix": "<after>"}, [FillIn(FimMarkers(4, 5, None), Layout.SPM)]),
    ],
)
def test_the_folders_file_names_layout_and_markers(
    fill_in: dict[str, str], expected: list[FillIn], tmp_path: Path
) -> None:
    choice = list_fill_ins("auto", _write(tmp_path, fill_in), _KNOWN)

    assert choice == (tuple(expected), "layout" in fill_in)


def test_the_setting_overrides_the_folders_layout_but_not_its_markers(tmp_path: Path) -> None:
    folder = _write(tmp_path, {**_OWN_NAMES, "layout": "psm"})

    choice = list_fill_ins("spm", folder, _UNKNOWN)

    assert choice == ((FillIn(FimMarkers(4, 5, 6), Layout.SPM),), True)
    assert list_fill_ins("none", folder, _UNKNOWN) == ((), True)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot read"),
        (20_000 * "[", "cannot read"),
        ("[]", "not an object of JSON"),
        ('{"fil_in": {}}', "unknown key 'fil_in' in the file; known are fill_in"),
        ('{"fill_in": "spm"}', "fill_in must be a JSON object"),
        ('{"fill_in": {"order": "spm"}}', "unknown key 'order' in fill_in; known are layout, prefix, suffix, middle"),
        ('{"fill_in": {"layout": "mps"}}', "layout must be one of none, psm, psm_line, spm, spm_line, not 'mps'"),
        ('{"fill_in": {"layout": "auto"}}', "layout must be one of none, psm"),
        ('{"fill_in": {"layout": 1}}', "layout must be a string, not '1'"),
        ('{"fill_in": {"prefix": "<before>"}}', "name both prefix and suffix, or neither"),
        ('{"languages": "python"}', "languages must be a list of names"),
        ('{"languages": [1]}', "languages must be a list of names"),
        ('{"dtype": "int2"}', "dtype must be one of float32, int8, int4, not \"'int2'\""),
        ('{"fill_in": {"middle": "<hole>"}}', "name both prefix and suffix, or neither"),
        (
            '{"fill_in": {"layout": "none", "prefix": "<b>", "suffix": "<after>"}}',
            "the tokenizer has no special token '<b>'",
        ),
        ('{"fill_in": {"prefix": "<b>", "suffix": "<after>"}}', "the tokenizer has no special token '<b>'"),
        (
            '{"fill_in": {"prefix": "<before>", "suffix": "<after>", "middle": "<after>"}}',
            "prefix, suffix and middle must be different markers",
        ),
        (
            '{"fill_in": {"prefix": "<before>", "suffix": "<after>", "layout": "psm"}}',
            "the layout psm, which needs a middle marker; without one it is spm",
        ),
    ],
)
def test_a_wrong_file_is_refused_by_name(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "midtoken.json").write_text(content)

    with pytest.raises(ModelError) as caught:
        list_fill_ins("auto", tmp_path, _KNOWN)

    assert "midtoken.json" in str(caught.value)
    assert message in str(caught.value)


def test_a_link_that_leads_nowhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "midtoken.json").symlink_to(tmp_path / "missing.json")

    with pytest.raises(ModelError, match="cannot read"):
        list_fill_ins("auto", tmp_path, _KNOWN)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("spm", "asks for the layout spm, but the tokenizer has no known fill-in markers"),
        ("mps", "must be one of auto, none, psm, psm_line"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(setting: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=f"fill_in_layout {message}"):
        list_fill_ins(setting, tmp_path, _UNKNOWN)


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


def _measure(folder: Path, kind: str, layout: Layout) -> MarkerMeasure:
    loaded, fill_in = load_model(EngineConfig(folder)), build_prompts(toy_tokenizer(kind), layout).fill_in
    assert fill_in is not None
    return measure_markers(loaded.model, loaded.tokenizer, fill_in)


@pytest.mark.parametrize(
    ("learned", "layout"),
    [(layout, layout) for layout in (Layout.PSM_LINE, Layout.SPM_LINE)]
    + [(None, layout) for layout in (Layout.PSM, Layout.PSM_LINE, Layout.SPM)],
)
def test_a_model_is_trained_if_it_learned_the_samples_with_the_markers(
    learned: Layout | None, layout: Layout, memorised: Memorised
) -> None:
    """Others learned the same samples as plain text."""
    assert _measure(memorised(learned), "qwen", layout).is_trained == (learned is layout)


@pytest.mark.parametrize(
    ("log_end", "log_early_end", "is_trained"),
    [(-0.1, -9.0, True), (-4.5, -9.0, True), (-4.7, -9.0, False), (-0.1, -2.0, False), (-0.1, -2.5, True)],
)
def test_the_end_must_be_likely_after_the_gap_and_unlikely_in_it(
    log_end: float, log_early_end: float, is_trained: bool
) -> None:
    assert MarkerMeasure(log_end, log_early_end).is_trained == is_trained
