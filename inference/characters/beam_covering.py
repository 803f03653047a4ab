"""The coverings `beam` and `enumerate`, which select token strings by their mass.

`enumerate` follows all token strings that can spell the bytes; it is for short texts. `beam` keeps the K most likely
bundles (Vieira et al. 2025, appendix D). Both are the same algorithm, with and without a limit:

1. Narrow the bundles by one more byte, and keep the K most likely.
2. Each token of a bundle that ends with this byte gives a new string. Read all new strings in one forward pass. If the
   next two bytes are known, read the strings that they will give in the same pass.
3. If no string ends with the byte, spell the remaining bytes of the most likely bundle in smaller tokens. Otherwise a
   byte could have probability zero.
"""

from collections.abc import Iterable, Iterator, Sequence

from inference.characters.state import Bundle, OpenText, State, narrow_all
from inference.characters.token_string import TokenReader, TokenString, read_all
from inference.errors import InvalidRequestError
from inference.healing.heal_point import find_section_heal_point
from inference.healing.text_encoder import TextEncoder
from trie_cache.trie import Trie

_MAX_BUNDLES = 4_096  # the new ones are read in one forward pass, with a row for each
_NUM_BYTES_AHEAD = 2  # whose strings are read in advance; few of those for a third byte are needed
_MAX_STRINGS_READ_AHEAD = 32  # with more strings, reading in advance takes longer than it saves
_NUM_TOKENS_FOLLOWED = 64  # when the window moves, strings that differ before these are dropped


class BeamCovering:
    """A covering that follows the `width` most likely bundles, or all bundles if `width` is None."""

    def __init__(self, encoder: TextEncoder, trie: Trie, width: int | None) -> None:
        self._encoder = encoder
        self._trie = trie
        self._width = width

    def open(self, reader: TokenReader, root: TokenString, context: bytes) -> State:
        """The state after `root` and the context.

        The tokens before the context's heal point are fixed to the canonical ones, except with `enumerate`.
        """
        base, tail = root, context
        if self._width is not None:
            point = find_section_heal_point(self._encoder, read_characters(context))
            base = root.extend_at_once(point.kept_ids, reader.max_tokens * 3 // 4)
            tail = context[sum(len(self._trie.spell(token_id)) for token_id in point.kept_ids) :]
        read_all(reader, [base])
        state = State(self, reader, (Bundle.open(self._trie, base),), (OpenText(base, b""),)).advance(tail)
        return State(self, reader, state.bundles, state.open_texts)  # probabilities are relative to the context

    def advance(self, state: State, byte: int, following: bytes) -> State:
        """The state after one more byte. Raises InvalidRequestError if `enumerate` has too many strings."""
        kept = self._prune(list(narrow_all(state.bundles, byte).values()))
        strings = list(_iter_new(kept))
        if kept and not strings:
            strings = [self._spell(state.reader, kept[0])]
        drafted = state.drafted
        if any(string.log_probs is None for string in strings):
            drafted = self._read_ahead(state.reader, strings, kept, following[:_NUM_BYTES_AHEAD])
        new = [bundle for bundle in kept if bundle.children.bytes.size or not bundle.remaining_bytes]
        new += [Bundle.open(self._trie, string) for string in strings]
        log_probability = state.log_probability + float(state.next_log_probs[byte])
        return self._fit_window(
            State(self, state.reader, tuple(new), state.open_texts, log_probability, drafted=drafted)
        )

    def _read_ahead(
        self, reader: TokenReader, strings: Sequence[TokenString], bundles: Sequence[Bundle], data: bytes
    ) -> tuple[TokenString, ...]:
        """Reads the strings, and those that they and the bundles will give for `data`. Returns all of them.

        `data`: the next bytes. So most of these strings will be needed, and a few more rows hardly slow a forward pass.
        """
        wanted = list(strings)
        parents = [(bundle.string, bundle.remaining_bytes) for bundle in bundles]
        parents += [(string, b"") for string in strings]
        if len(parents) <= _MAX_STRINGS_READ_AHEAD:
            for string, remaining_bytes in parents:
                wanted += self._iter_extended(string, remaining_bytes, data)
        read_all(reader, dict.fromkeys(string for string in wanted if string.num_tokens <= reader.max_tokens))
        return tuple(wanted)

    def _iter_extended(self, string: TokenString, remaining_bytes: bytes, data: bytes) -> Iterator[TokenString]:
        """The longer strings whose tokens spell `remaining_bytes` and a beginning of `data`."""
        for end in range(1, len(data) + 1):
            for token_id in self._trie.find_ids(remaining_bytes + data[:end]):
                child = string.extend([token_id])
                yield child
                yield from self._iter_extended(child, b"", data[end:])

    def _prune(self, bundles: list[Bundle]) -> list[Bundle]:
        """The bundles to keep, most likely first."""
        if self._width is None and len(bundles) > _MAX_BUNDLES:
            raise InvalidRequestError(
                f"enumerate is for short texts: more than {_MAX_BUNDLES} token strings spell this one"
            )
        return sorted(bundles, key=lambda bundle: -bundle.log_interval_mass)[: self._width]

    def _spell(self, reader: TokenReader, bundle: Bundle) -> TokenString:
        """The bundle's string, followed by its remaining bytes in smaller tokens, and read."""
        path = self._encoder.encode_beginning(bundle.remaining_bytes)
        strings = [bundle.string.extend(path[:end]) for end in range(len(path) + 1)]
        read_all(reader, strings)
        for string in strings[1:]:
            string.set_log_mass(self._trie.rank)
        for string in strings[:-1]:
            string.log_probs = None
        return strings[-1]

    def _fit_window(self, state: State) -> State:
        """The state, with its oldest tokens cut off if another token would not fit in the window.

        The cut drops the strings whose older tokens differ from those of the most likely string that ends here.
        """
        # At most one token for each remaining byte.
        num_tokens = {bundle.string: bundle.string.num_tokens + len(bundle.remaining_bytes) for bundle in state.bundles}
        max_tokens = state.reader.max_tokens
        if max(num_tokens.values(), default=0) < max_tokens:
            return state
        masses = {bundle.string: bundle.log_ahead for bundle in state.bundles}
        ended = [bundle.string for bundle in state.bundles if not bundle.remaining_bytes]  # any byte may follow these
        num_followed = min(_NUM_TOKENS_FOLLOWED, max_tokens // 4)
        old = max(ended, key=masses.__getitem__).find_ancestor(num_followed)
        new = old.move_window(max_tokens // 2)
        room = max_tokens - new.num_tokens
        moved = {
            string: string.move(old, new)
            for string in masses
            if string.begins_with(old) and num_tokens[string] - old.num_tokens < room
        }
        if len(moved) < len(masses) and self._width is None:
            raise InvalidRequestError("enumerate is for short texts: this one does not fit in the model's window")
        bundles = tuple([bundle.move(moved[bundle.string]) for bundle in state.bundles if bundle.string in moved])
        return State(self, state.reader, bundles, (OpenText(new, b""),), state.log_probability)


def _iter_new(bundles: Iterable[Bundle]) -> Iterator[TokenString]:
    """The strings that end exactly where the text ends."""
    for bundle in bundles:
        for token_id, log_prob in bundle.find_exact():
            string = bundle.string.extend([token_id])
            string.log_mass = bundle.log_mass + log_prob
            yield string


def read_characters(data: bytes) -> str:
    """The characters before the first that is incomplete or not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        return data[: error.start].decode()
