"""The special tokens around the sections of a fill-in-the-middle prompt."""

from dataclasses import dataclass
from enum import StrEnum

from trie_cache.vocabulary import Vocabulary

# The names of the markers in each model family: prefix, suffix, middle.
_MARKERS = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),  # Qwen, CodeGemma
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),  # StarCoder, Granite
    ("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),  # SantaCoder
    ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),  # DeepSeek
    ("▁<PRE>", "▁<SUF>", "▁<MID>"),  # CodeLlama
    ("[PREFIX]", "[SUFFIX]", None),  # Codestral: the suffix, then the prefix; no third marker
)


class FimOrder(StrEnum):
    """The order of the sections of a fill-in-the-middle prompt; the middle is always last."""

    PREFIX_SUFFIX = "psm"
    SUFFIX_PREFIX = "spm"


@dataclass(frozen=True, slots=True)
class FimMarkers:
    """The token ids of one model's markers."""

    prefix: int
    suffix: int
    middle: int | None  # None: the suffix comes first, and no marker follows the prefix

    @property
    def num_tokens(self) -> int:
        """The number of markers in a prompt."""
        return 2 if self.middle is None else 3


def find_fim_markers(vocabulary: Vocabulary) -> FimMarkers | None:
    """The model's markers, or None if it has none."""
    for prefix_name, suffix_name, middle_name in _MARKERS:
        prefix, suffix = vocabulary.special_id(prefix_name), vocabulary.special_id(suffix_name)
        middle = None if middle_name is None else vocabulary.special_id(middle_name)
        if prefix is not None and suffix is not None and (middle is None) == (middle_name is None):
            return FimMarkers(prefix, suffix, middle)
    return None
