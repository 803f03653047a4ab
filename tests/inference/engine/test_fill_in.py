import json
from pathlib import Path

import pytest

from inference.engine.fill_in import FillInChoice, list_fill_ins
from inference.engine.layout import FillIn, FimMarkers, Layout
from inference.errors import ModelError
from trie_cache.vocabulary import Vocabulary

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

    assert list_fill_ins("auto", tmp_path, vocabulary) == FillInChoice(expected, False)
    if layouts:  # a folder's file that names the same markers, as that of a GGUF file does, says no more
        folder = _write(tmp_path, dict(zip(("prefix", "suffix", "middle"), names, strict=False)))
        assert list_fill_ins("auto", folder, vocabulary) == FillInChoice(expected, False)
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

    assert choice == FillInChoice(tuple(expected), "layout" in fill_in)


def test_the_setting_overrides_the_folders_layout_but_not_its_markers(tmp_path: Path) -> None:
    folder = _write(tmp_path, {**_OWN_NAMES, "layout": "psm"})

    choice = list_fill_ins("spm", folder, _UNKNOWN)

    assert choice == FillInChoice((FillIn(FimMarkers(4, 5, 6), Layout.SPM),), True)
    assert list_fill_ins("none", folder, _UNKNOWN) == FillInChoice((), True)


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
