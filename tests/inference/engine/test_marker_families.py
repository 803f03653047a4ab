import pytest

from inference.engine.fill_in import find_family
from inference.engine.layout import FimMarkers, Layout
from trie_cache.vocabulary import Vocabulary


@pytest.mark.parametrize(
    ("names", "layout"),
    [
        (("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"), Layout.PSM_LINE),
        (("<fim_prefix>", "<fim_suffix>", "<fim_middle>"), Layout.PSM_LINE),
        (("<fim-prefix>", "<fim-suffix>", "<fim-middle>"), Layout.PSM_LINE),
        (("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"), Layout.PSM_LINE),
        (("▁<PRE>", "▁<SUF>", "▁<MID>"), Layout.PSM_LINE),
        (("[PREFIX]", "[SUFFIX]"), Layout.SPM),
    ],
)
def test_the_markers_of_every_family_are_found(names: tuple[str, ...], layout: Layout) -> None:
    vocabulary = Vocabulary.from_tokens({0: b"a"}, {name: 1 + index for index, name in enumerate(names)})

    family = find_family(vocabulary)

    assert family is not None
    assert family.find_markers(vocabulary) == FimMarkers(1, 2, 3 if len(names) == 3 else None)
    assert family.layout is layout


def test_an_incomplete_set_of_markers_counts_as_none() -> None:
    vocabulary = Vocabulary.from_tokens({0: b"a"}, {"<fim_prefix>": 1, "<fim_suffix>": 2})

    assert find_family(vocabulary) is None
