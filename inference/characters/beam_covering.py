"""The coverings `beam` and `enumerate`: mass decides which token strings are followed.

`enumerate` follows all token strings that can spell the bytes: for small cases. `beam` keeps the heaviest K bundles
(Vieira et al. 2025, appendix D), and does not read strings whose probability is below a threshold (appendix G). Both
are one algorithm, with and without a limit:

1. One more byte narrows the bundles. The heaviest K are kept.
2. A token of a bundle that ends with this byte makes a new string. All new strings are read in one forward pass. Where
   the next two bytes are known, the strings that they will make are read in the same pass.
3. A new string below the threshold is not read. Its mass is spread evenly over all 257 outcomes, so that none has
   probability zero. It is read later if its mass turns out to matter.
4. If no string ends with the byte, the remaining bytes of the heaviest bundle are spelled in smaller tokens. Without
   this, too, a byte could have probability zero.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from inference.characters.bundle import Bundle, sum_all
from inference.characters.state import OpenText, State, Totals, narrow_all
from inference.characters.token_string import TokenReader, TokenString, read_all
from inference.characters.utf8 import split_whole_text
from inference.errors import InvalidRequestError
from inference.healing.heal_point import find_section_heal_point
from inference.healing.text_encoder import TextEncoder
from trie_cache.trie import Trie

_MAX_BUNDLES = 4_096  # the new ones are read in one forward pass, and hold a row each
_NUM_BYTES_AHEAD = 2  # whose strings are read in advance; few of those for a third byte would be needed
_MAX_STRINGS_READ_AHEAD = 32  # with more strings, reading in advance takes longer than it saves
_NUM_TOKENS_FOLLOWED = 64  # strings that differ further back are dropped when the window moves


class BeamCovering:
    """A covering that follows the heaviest `width` bundles, or all of them where that is None."""

    def __init__(self, encoder: TextEncoder, trie: Trie, width: int | None, threshold: float = 0.0) -> None:
        self._encoder = encoder
        self._trie = trie
        self._width = width
        self._log_threshold = float(np.log(threshold)) if threshold else -np.inf

    def open(self, reader: TokenReader, root: TokenString, context: bytes) -> State:
        """The state after `root` and the context.

        Tokens before the context's heal point are taken as the tokenizer writes them. `enumerate` takes none as given.
        """
        base, tail = root, context
        if self._width is not None:
            point = find_section_heal_point(self._encoder, split_whole_text(context)[0])
            base = root.extend_at_once(point.kept_ids, reader.max_tokens * 3 // 4)
            tail = context[sum(len(self._trie.spell(token_id)) for token_id in point.kept_ids) :]
        read_all(reader, [base])
        start = State(self, reader, (Bundle.open(self._trie, base),), (OpenText(base, b""),), Totals())
        state = start.advance(tail)
        totals = Totals(0.0, state.totals.log_dropped)  # probabilities count from the end of the context
        return State(self, reader, state.bundles, state.open_texts, totals, unread=state.unread)

    def walk(self, state: State, data: bytes) -> Iterator[State]:
        """The states after each of the bytes. Raises InvalidRequestError where `enumerate` has too many strings."""
        for place, byte in enumerate(data):
            state = self._advance_by(state, byte, data[place + 1 : place + 1 + _NUM_BYTES_AHEAD])
            yield state

    def _advance_by(self, state: State, byte: int, following: bytes) -> State:
        """The state after one more byte; `following` are the bytes known to come after it."""
        log_prob = float(state.next_log_probs[byte])
        late = [string for string in state.unread if string.get_log_mass() >= state.log_mass + log_prob]
        read_all(state.reader, late)
        bundles = [*state.bundles, *(Bundle.open(self._trie, string) for string in late)]
        kept, dropped = self._prune(list(narrow_all(bundles, byte).values()))
        missed = [bundle.log_interval_mass for bundle in dropped]
        missed += [string.get_log_mass() for string in state.unread if string not in late]
        heavy, light = self._find_new(kept)
        if kept and not heavy and not light:
            heavy = [self._spell(state.reader, kept[0])]
        drafted = state.drafted
        if any(string.log_probs is None for string in heavy):
            drafted = self._read_ahead(state.reader, heavy, kept, following)
        new = [bundle for bundle in kept if bundle.can_continue] + [Bundle.open(self._trie, string) for string in heavy]
        totals = state.totals.add(log_prob, missed)
        return self._fit_window(
            State(self, state.reader, tuple(new), state.open_texts, totals, unread=tuple(light), drafted=drafted)
        )

    def _read_ahead(
        self, reader: TokenReader, strings: Sequence[TokenString], bundles: Sequence[Bundle], data: bytes
    ) -> tuple[TokenString, ...]:
        """Reads the strings, and those that they and the bundles will make of `data`. Returns all of them.

        `data` are the next bytes, so most of these strings are needed; and a few more rows hardly slow a forward pass.
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

    def _prune(self, bundles: list[Bundle]) -> tuple[list[Bundle], list[Bundle]]:
        """The bundles to keep, the heaviest first, and those to drop."""
        if self._width is None:
            if len(bundles) > _MAX_BUNDLES:
                raise InvalidRequestError(
                    f"enumerate is for short texts: more than {_MAX_BUNDLES} token strings spell it"
                )
            return bundles, []
        bundles.sort(key=lambda bundle: -bundle.log_interval_mass)
        return bundles[: self._width], bundles[self._width :]

    def _find_new(self, bundles: Sequence[Bundle]) -> tuple[list[TokenString], list[TokenString]]:
        """The strings whose last token ends with the text: those to read, and those below the threshold."""
        log_least = sum_all(np.array([bundle.log_interval_mass for bundle in bundles])) + self._log_threshold
        heavy: list[TokenString] = []
        light: list[TokenString] = []
        for bundle in bundles:
            for token_id, log_prob in bundle.find_exact():
                string = bundle.string.extend([token_id])
                string.log_mass = bundle.log_mass + log_prob
                (heavy if string.log_mass >= log_least else light).append(string)
        return heavy, light

    def _spell(self, reader: TokenReader, bundle: Bundle) -> TokenString:
        """The bundle's string, followed by its remaining bytes in smaller tokens. It is read."""
        path = self._encoder.encode_beginning(bundle.remaining_bytes)
        strings = [bundle.string.extend(path[:end]) for end in range(len(path) + 1)]
        read_all(reader, strings)
        for string in strings[1:]:
            string.set_log_mass(self._trie.rank)
        for string in strings[:-1]:
            string.log_probs = None
        return strings[-1]

    def _fit_window(self, state: State) -> State:
        """The state itself, or with older tokens cut off where another token would not fit in the window.

        Then strings that differ too far back from the heaviest of those that end here are dropped.
        """
        num_tokens = {string: string.num_tokens for string in state.unread}  # at most one token for each remaining byte
        num_tokens |= {
            bundle.string: bundle.string.num_tokens + len(bundle.remaining_bytes) for bundle in state.bundles
        }
        max_tokens = state.reader.max_tokens
        if max(num_tokens.values(), default=0) < max_tokens:
            return state
        masses = {bundle.string: bundle.log_ahead for bundle in state.bundles}
        masses |= {string: string.get_log_mass() for string in state.unread}
        ended = [
            *(bundle.string for bundle in state.bundles if not bundle.remaining_bytes),
            *state.unread,
        ]  # strings that any byte can follow
        num_followed = min(_NUM_TOKENS_FOLLOWED, max_tokens // 4)
        old = max(ended, key=masses.__getitem__).find_ancestor(num_followed)
        new = old.move_window(max_tokens // 2)
        room = max_tokens - new.num_tokens
        moved = {
            string: string.move(old, new)
            for string in masses
            if string.begins_with(old) and num_tokens[string] - old.num_tokens < room
        }
        missed = [log_mass for string, log_mass in masses.items() if string not in moved]
        if missed and self._width is None:
            raise InvalidRequestError("enumerate is for short texts: this one does not fit in the model's window")
        bundles = tuple([bundle.move(moved[bundle.string]) for bundle in state.bundles if bundle.string in moved])
        unread = tuple([moved[string] for string in state.unread if string in moved])
        return State(self, state.reader, bundles, (OpenText(new, b""),), state.totals.add(0.0, missed), unread=unread)
