"""The fill-in markers of the known model families, and the layout that each family gets by default.

None of these families can be measured here, so the layouts follow from what their authors say of the training:

- Qwen's coders: prefix–suffix–middle (their README, "file-level code completion").
- CodeGemma: both orders in equal parts; its prompts are prefix–suffix–middle (its model card). It has Qwen's names.
- StarCoder, StarCoder 2, Granite, SantaCoder, StableCode: prefix–suffix–middle in their documentation. Those trained
  with BigCode's code have read both orders.
- DeepSeek's coders: prefix–suffix–middle, chosen over the other order (paper of DeepSeek-Coder, section 3.1.2).
- CodeLlama: both orders in equal parts; its tokenizer writes prefix–suffix–middle unless told otherwise.
- Codestral: suffix, then prefix, without a third marker (Mistral's `encode_fim`).

A model that knows prefix–suffix–middle gets `psm_line`: the same order, with the middle beginning at the start of the
cursor's line. A middle that begins inside a word is what such models do worst (Ren et al. 2024, arXiv:2405.17103), and
the default model completes 55 % of the identifiers rightly with `psm`, 79 % with `psm_line`. A model's folder can name
another layout, as the default model's does.
"""

from dataclasses import dataclass

from inference.engine.prompts.fim_markers import FimMarkers
from inference.engine.prompts.layout import Layout
from trie_cache.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class MarkerFamily:
    """The names of a family's markers, and its layout."""

    prefix: str
    suffix: str
    middle: str | None
    layout: Layout

    def find_markers(self, vocabulary: Vocabulary) -> FimMarkers | None:
        """The ids of the markers, or None if the vocabulary lacks one of them."""
        prefix, suffix = vocabulary.special_id(self.prefix), vocabulary.special_id(self.suffix)
        middle = None if self.middle is None else vocabulary.special_id(self.middle)
        if prefix is None or suffix is None or (middle is None and self.middle is not None):
            return None
        return FimMarkers(prefix, suffix, middle)


_FAMILIES = (
    MarkerFamily("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", Layout.PSM_LINE),  # Qwen, CodeGemma
    MarkerFamily("<fim_prefix>", "<fim_suffix>", "<fim_middle>", Layout.PSM_LINE),  # StarCoder, Granite, StableCode
    MarkerFamily("<fim-prefix>", "<fim-suffix>", "<fim-middle>", Layout.PSM_LINE),  # SantaCoder
    MarkerFamily("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>", Layout.PSM_LINE),  # DeepSeek
    MarkerFamily("▁<PRE>", "▁<SUF>", "▁<MID>", Layout.PSM_LINE),  # CodeLlama
    MarkerFamily("[PREFIX]", "[SUFFIX]", None, Layout.SPM),  # Codestral
)


def find_family(vocabulary: Vocabulary) -> MarkerFamily | None:
    """The first family whose markers the vocabulary has all of, or None."""
    return next((family for family in _FAMILIES if family.find_markers(vocabulary) is not None), None)
