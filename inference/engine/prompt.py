"""The prompt of a request: the kept tokens in the layout that the model was trained with, and the healed bytes.

In a fill-in-the-middle prompt, the partial word would be at the end of the prefix section, far from the position where
the model continues. So the healed bytes are removed from the prefix section, and the covering spells them at the end of
the prompt; `inference.engine.layout` shows the layouts.

The start tokens, the markers, both sections and the tokens that spell the healed bytes must fit into the available
room. If they do not, the suffix is shortened first, if necessary to nothing. Then the kept tokens are cut at the front.
The start tokens and the healed bytes are never cut: a request whose healed bytes do not fit is refused.

What is told of other files (`inference.engine.repository_format`) follows the start tokens and takes at most half of
the room, in whole files.
"""

from dataclasses import dataclass
from functools import lru_cache, partial

from inference.engine.layout import FillIn
from inference.engine.repository_format import RelatedEncoder, RelatedPart
from inference.errors import InvalidRequestError
from inference.healing.covering import CoveringTree, Crossing, Rule, build_covering, build_root_covering
from inference.healing.heal_point import encode_section, encode_text
from inference.healing.heal_point_cache import HealPointCache
from inference.healing.loaded_tokenizer import LoadedTokenizer
from inference.healing.token_tree import TokenTree
from inference.protocol.completion import CompletionRequest, Healing

_MAX_CHARS_PER_TOKEN = 16  # for each token of the room; text further from the cursor is not tokenized
_CHARS_PER_TOKEN = 4  # of code, about
_AHEAD_FRACTION = 0.125  # of the room; more is seldom typed without a pause
_MIN_SPELLING_ROOM = 32  # for tokens that spell healed bytes; if it followed them, the window would move with them
_MAX_SUFFIXES = 32  # whose tokens are remembered
_MAX_SUFFIX_FRACTION = 0.25  # of the room
_MIN_KEPT_FRACTION = 0.25  # of the room: the suffix leaves this much to the kept tokens


@dataclass(frozen=True, slots=True)
class Prompt:
    """The input of a request's first forward pass."""

    context_ids: tuple[int, ...]  # never empty
    covering: CoveringTree
    kept_ids: tuple[int, ...]  # the part of `context_ids` that comes from the text before the cursor
    healed: bytes
    num_healed_bytes: int  # without the dummy prefix, which was not typed
    num_spelling_tokens: int  # the most tokens that spell only healed bytes
    reads_suffix: bool  # whether `context_ids` has text after the cursor
    related: RelatedPart
    was_cut: bool  # whether there was no room for all of the text before the cursor

    @property
    def tree(self) -> TokenTree:
        """That of the covering, below the context."""
        return self.covering.tree.with_chain(self.context_ids)


class PromptBuilder:
    """Builds prompts for one model."""

    def __init__(self, tokenizer: LoadedTokenizer, fill_in: FillIn | None = None) -> None:
        """`fill_in`: how the model is given suffixes; None: it is not."""
        self.tokenizer = tokenizer
        self.fill_in = fill_in
        self.related = RelatedEncoder(tokenizer, fill_in)
        self._heal_point_cache = HealPointCache(tokenizer.encoder)
        self._encode_section = lru_cache(_MAX_SUFFIXES)(partial(encode_section, tokenizer.encoder))

    def build(self, request: CompletionRequest, max_tokens: int, leaves_room: bool = False) -> Prompt:
        """The request's prompt. The context and the tokens that spell healed bytes are at most `max_tokens` together.

        `leaves_room`: the window is where it will be when somewhat more is typed. Raises InvalidRequestError if the
        healed bytes do not fit.
        """
        num_ahead = int(max_tokens * _AHEAD_FRACTION) if leaves_room else 0
        prefix = _cut_front(request.prefix, max_tokens * _MAX_CHARS_PER_TOKEN, num_ahead * _CHARS_PER_TOKEN)
        kept, healed, covering = self._heal(prefix, request)
        num_spelling = _count_spelling_tokens(covering)
        room = max_tokens - len(self.tokenizer.start_ids) - max(num_spelling, min(_MIN_SPELLING_ROOM, max_tokens // 4))
        if room < 0:
            raise InvalidRequestError(
                f"the {len(healed)} bytes before the cursor that are generated again may take {num_spelling} tokens, "
                f"and the start tokens take {len(self.tokenizer.start_ids)}, but the prompt has room for {max_tokens}; "
                "set healing to none"
            )
        related = self.related.encode(request, room // 2)
        room -= related.num_tokens
        num_markers = 0 if self.fill_in is None else self.fill_in.markers.num_tokens
        num_kept_first = min(len(kept), int(max_tokens * _MIN_KEPT_FRACTION))
        num_suffix = min(int(max_tokens * _MAX_SUFFIX_FRACTION), room - num_kept_first - num_markers)
        suffix_ids = self._encode_suffix(request.suffix, num_suffix)
        all_kept, kept = kept, _cut_window(kept, room - len(suffix_ids) - (num_markers if suffix_ids else 0), num_ahead)
        num_healed_bytes = self._count_typed(prefix, len(healed), covering.num_common_bytes)
        sections = self._lay_out(kept, suffix_ids, healed, len(covering.common_ids), related.head_ids)
        return Prompt(
            self.tokenizer.start_ids + related.ids + sections,
            covering,
            kept,
            healed,
            num_healed_bytes,
            num_spelling,
            reads_suffix=bool(suffix_ids),
            related=related,
            was_cut=len(kept) < len(all_kept) or len(prefix) < len(request.prefix),
        )

    def _count_typed(self, prefix: str, num_healed: int, num_common: int) -> int:
        """How many of the healed bytes were typed. Raises InvalidRequestError if the vocabulary cannot spell them.

        `num_common`: the bytes between them and the heal point.
        """
        typed = self.tokenizer.encoder.normalize(prefix)
        num_bytes = len(typed.encode())
        self.tokenizer.encoder.check_end(typed, min(num_common + num_healed, num_bytes), "prefix")
        return min(num_healed, num_bytes)

    def _heal(self, prefix: str, request: CompletionRequest) -> tuple[tuple[int, ...], bytes, CoveringTree]:
        healing = request.healing
        if healing is Healing.EXACT:
            point = self._heal_point_cache.heal(prefix, request.tenant)
            covering = build_covering(self.tokenizer.encoder, self.tokenizer.trie, point)
            return point.kept_ids + covering.common_ids, point.healed[covering.num_common_bytes :], covering
        if healing is Healing.GREEDY:
            point = self._heal_point_cache.heal(prefix, request.tenant)
            return point.kept_ids, point.healed, build_root_covering(point.healed, Rule.SPELL)
        ids = encode_text(self.tokenizer.encoder, prefix)
        if healing is Healing.SINGLE and ids:
            last = self.tokenizer.vocabulary.token_bytes[ids[-1]]
            return ids[:-1], last, build_root_covering(last, Rule.EXTEND)
        return ids, b"", build_root_covering(b"", Rule.EXTEND)

    def _encode_suffix(self, suffix: str, max_tokens: int) -> tuple[int, ...]:
        """The suffix's first tokens; none if the model is not given suffixes."""
        if self.fill_in is None or max_tokens <= 0 or not suffix.strip():
            return ()
        return self._encode_section(suffix[: max_tokens * _MAX_CHARS_PER_TOKEN])[:max_tokens]

    def _lay_out(
        self,
        kept: tuple[int, ...],
        suffix_ids: tuple[int, ...],
        healed: bytes,
        num_open: int,
        head_ids: tuple[int, ...],
    ) -> tuple[int, ...]:
        if self.fill_in is None or not suffix_ids:
            return head_ids + kept
        return self.fill_in.lay_out(kept, suffix_ids, healed, self.tokenizer.vocabulary.token_bytes, num_open, head_ids)


def _count_spelling_tokens(covering: CoveringTree) -> int:
    """The most tokens that spell only healed bytes: those of a path, and those for its remaining bytes."""
    depths = covering.tree.find_depths()
    return max(
        (
            (0 if crossing.node is None else depths[crossing.node]) + _count_spelling_tokens_at(crossing)
            for crossing in covering.crossings
        ),
        default=0,
    )


def _count_spelling_tokens_at(crossing: Crossing) -> int:
    if crossing.rule is Rule.SPELL:
        return len(crossing.remaining_bytes)  # one token for each byte
    return int(crossing.rule is Rule.EXTEND and bool(crossing.remaining_bytes))  # one token may spell them all


def _cut_front(text: str, max_chars: int, num_ahead: int = 0) -> str:
    """The end of the text, cut at a line start if possible. The cut moves in blocks of half of `max_chars`.

    `num_ahead`: characters for which room is left.
    """
    num_chars = len(text) + num_ahead
    if num_chars <= max_chars:
        return text
    block = max(max_chars // 2, 1)
    start = -(-(num_chars - max_chars) // block) * block
    line = text.find("\n", start) + 1
    return text[line if 0 < line < start + max_chars // 8 else start :]


def _cut_window(ids: tuple[int, ...], max_tokens: int, num_ahead: int) -> tuple[int, ...]:
    """The last ids, at most `max_tokens`. The cut moves in blocks; otherwise each keystroke would move it.

    A block is a power of two, at most half of the room. `num_ahead`: tokens for which room is left.
    """
    num_ids = len(ids) + num_ahead
    if num_ids <= max_tokens:
        return ids
    block = 1 << (max(max_tokens // 2, 1).bit_length() - 1)
    return ids[-(-(num_ids - max_tokens) // block) * block :]
