import pytest

from inference.engine.prompts.fim_markers import FimMarkers, find_fim_markers
from trie_cache.vocabulary import Vocabulary


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
def test_the_markers_of_every_family_are_found(names: tuple[str, ...]) -> None:
    vocabulary = Vocabulary.from_tokens({0: b"a"}, {name: 1 + index for index, name in enumerate(names)})

    assert find_fim_markers(vocabulary) == FimMarkers(1, 2, 3 if len(names) == 3 else None)


def test_an_incomplete_set_of_markers_counts_as_none() -> None:
    vocabulary = Vocabulary.from_tokens({0: b"a"}, {"<fim_prefix>": 1, "<fim_suffix>": 2})

    assert find_fim_markers(vocabulary) is None


def test_a_family_without_a_middle_marker_has_two_markers() -> None:
    assert (FimMarkers(1, 2, 3).num_tokens, FimMarkers(1, 2, None).num_tokens) == (3, 2)
