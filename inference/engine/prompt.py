"""The prompt of a request: the kept tokens where the model was trained to see them, and what is left to heal.

In a fill-in-the-middle prompt the word that is being typed would stand at the end of the prefix
section, far from where the model goes on. So the healed bytes leave the prefix section, and the
covering spells them after the last marker:

    prefix-suffix-middle   <prefix> kept <suffix> suffix <middle>   healed…
    suffix-prefix-middle   <prefix> <suffix> suffix <middle> kept   healed…
"""

from dataclasses import dataclass
from enum import StrEnum

from inference.healing.covering import CoveringTree, Rule, build_covering, build_root_covering
from inference.healing.heal_point import encode_section, encode_text, find_heal_point
from inference.healing.text_encoder import TextEncoder
from inference.protocol.completion import CompletionRequest, Healing
from trie_cache.trie import Trie
from trie_cache.vocabulary import Vocabulary

_MAX_CHARS_PER_TOKEN = 8  # text further back than this many characters a token is not even tokenized
_WINDOW_BLOCK = 128  # the window's start moves in blocks, or every keystroke would shift all positions
_SUFFIX_SHARE = 0.25
_NUM_MARKERS = 3

# The marker names of the families: prefix, suffix, middle.
_MARKERS = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),  # Qwen, CodeGemma
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),  # StarCoder, Granite
    ("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),  # SantaCoder
    ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),  # DeepSeek
    ("▁<PRE>", "▁<SUF>", "▁<MID>"),  # CodeLlama
    ("[PREFIX]", "[SUFFIX]", None),  # Codestral: suffix first, then the prefix, no third marker
)


class FimOrder(StrEnum):
    """Which section of a fill-in-the-middle prompt comes last before the middle."""

    PREFIX_SUFFIX = "psm"
    SUFFIX_PREFIX = "spm"


@dataclass(frozen=True, slots=True)
class FimMarkers:
    """The token ids that a model was trained to see around the sections."""

    prefix: int
    suffix: int
    middle: int | None


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a request's first forward pass is made of."""

    context_ids: tuple[int, ...]  # never empty
    covering: CoveringTree
    kept_ids: tuple[int, ...]  # those of the prefix that stand in the context
    healed: bytes
    num_healed_bytes: int  # of those, how many were typed: the tokenizer's own blank before the text was not


def find_fim_markers(vocabulary: Vocabulary) -> FimMarkers | None:
    """The model's own markers, or None where it has none."""
    for prefix_name, suffix_name, middle_name in _MARKERS:
        prefix, suffix = vocabulary.special_id(prefix_name), vocabulary.special_id(suffix_name)
        middle = None if middle_name is None else vocabulary.special_id(middle_name)
        if prefix is not None and suffix is not None and (middle is None) == (middle_name is None):
            return FimMarkers(prefix, suffix, middle)
    return None


@dataclass(frozen=True, slots=True)
class PromptBuilder:
    """Builds prompts for one model."""

    encoder: TextEncoder
    vocabulary: Vocabulary
    trie: Trie
    start_ids: tuple[int, ...]  # what every text of this model begins with
    markers: FimMarkers | None
    order: FimOrder = FimOrder.PREFIX_SUFFIX

    def build(self, request: CompletionRequest, max_tokens: int) -> Prompt:
        """The request's prompt in at most `max_tokens`, cut where the text is furthest from the cursor."""
        prefix = _cut_front(request.prefix, max_tokens * _MAX_CHARS_PER_TOKEN)
        kept, healed, covering = self._heal(prefix, request.healing)
        suffix_ids: tuple[int, ...] = ()
        if self.markers is not None and request.suffix.strip():
            num_suffix = int(max_tokens * _SUFFIX_SHARE)
            suffix_ids = encode_section(self.encoder, request.suffix[: num_suffix * _MAX_CHARS_PER_TOKEN])[:num_suffix]
        num_others = len(suffix_ids) + len(self.start_ids) + _NUM_MARKERS + _count_healing_tokens(covering)
        kept = _cut_window(kept, max_tokens - num_others)
        num_healed_bytes = min(len(healed), len(prefix.encode()))
        return Prompt(self._lay_out(kept, suffix_ids), covering, kept, healed, num_healed_bytes)

    def _heal(self, prefix: str, healing: Healing) -> tuple[tuple[int, ...], bytes, CoveringTree]:
        if healing is Healing.EXACT:
            point = find_heal_point(self.encoder, prefix)
            return point.kept_ids, point.healed, build_covering(self.encoder, self.trie, point)
        if healing is Healing.GREEDY:
            point = find_heal_point(self.encoder, prefix)
            return point.kept_ids, point.healed, build_root_covering(point.healed, Rule.SPELL)
        ids = encode_text(self.encoder, prefix)
        if healing is Healing.SINGLE and ids:
            last = self.vocabulary.token_bytes[ids[-1]]
            return ids[:-1], last, build_root_covering(last, Rule.EXTEND)
        return ids, b"", build_root_covering(b"", Rule.EXTEND)

    def _lay_out(self, kept: tuple[int, ...], suffix_ids: tuple[int, ...]) -> tuple[int, ...]:
        if not suffix_ids or self.markers is None:
            return self.start_ids + kept
        markers = self.markers
        if markers.middle is None:
            return (*self.start_ids, markers.suffix, *suffix_ids, markers.prefix, *kept)
        if self.order is FimOrder.SUFFIX_PREFIX:
            return (*self.start_ids, markers.prefix, markers.suffix, *suffix_ids, markers.middle, *kept)
        return (*self.start_ids, markers.prefix, *kept, markers.suffix, *suffix_ids, markers.middle)


def _count_healing_tokens(covering: CoveringTree) -> int:
    """At most how many tokens spell healed bytes only."""
    depths = covering.build_tree(()).find_depths()
    return max(depths, default=max(len(crossing.remaining_bytes) for crossing in covering.crossings))


def _cut_front(text: str, max_chars: int) -> str:
    """The text's end from the start of a line on, moving in blocks of an eighth of `max_chars`."""
    if len(text) <= max_chars:
        return text
    block = max(max_chars // 8, 1)
    start = -(-(len(text) - max_chars) // block) * block
    line = text.find("\n", start) + 1
    return text[line if 0 < line < len(text) - max_chars // 2 else start :]


def _cut_window(ids: tuple[int, ...], max_tokens: int) -> tuple[int, ...]:
    """The last ids, from a start that moves in blocks."""
    if len(ids) <= max_tokens:
        return ids
    num_cut = -(-(len(ids) - max_tokens) // _WINDOW_BLOCK) * _WINDOW_BLOCK
    return ids[min(num_cut, len(ids) - 1) :] if max_tokens > 0 else ()
