"""Coverings by mass: all token strings that can spell the bytes, or the heaviest of them.

`enumerate` follows all, as many as there are: for small cases. `beam` keeps the heaviest K bundles (Vieira et al.
2025, appendix D), and does not read strings whose share is below a threshold (appendix G):

1. One more byte narrows the bundles; the heaviest K stay.
2. Where a bundle holds a token that ends with this byte, the string goes on with that token as a new one. All new ones
   are read in one forward pass; where the next two bytes are known, so is what they will make of them.
3. A new string below the threshold is not read. Its mass is spread evenly over what may come next, so that nothing that
   comes has probability zero; and where what comes makes it matter, it is read after all.
4. Should no string end with the byte, the heaviest bundle's rest is spelled in smaller tokens, for the same reason.
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

_MAX_BUNDLES = 4_096  # the new ones among them are read in one forward pass, and hold a row each
_NUM_BYTES_AHEAD = 2  # that strings are read for in one pass; of those for a third, few are needed
_MAX_STRINGS_READ_AHEAD = 32  # for more, a forward pass takes as long as all their rows
_NUM_TOKENS_FOLLOWED = 64  # strings that part further back are given up when the window moves


class BeamCovering:
    """The heaviest `width` bundles; None: all of them."""

    def __init__(self, encoder: TextEncoder, trie: Trie, width: int | None, threshold: float = 0.0) -> None:
        self._encoder = encoder
        self._trie = trie
        self._width = width
        self._log_threshold = float(np.log(threshold)) if threshold else -np.inf

    def open(self, reader: TokenReader, root: TokenString, context: bytes) -> State:
        """The state after `root` and the context. The tokens before its heal point are taken as the tokenizer's own.

        Where all is followed, so it is from the context's beginning.
        """
        base, tail = root, context
        if self._width is not None:
            point = find_section_heal_point(self._encoder, split_whole_text(context)[0])
            base = root.extend_at_once(point.kept_ids, reader.max_tokens * 3 // 4)
            tail = context[sum(len(self._trie.spell(token_id)) for token_id in point.kept_ids) :]
        read_all(reader, [base])
        state = State(self, reader, [Bundle.open(self._trie, base)], [OpenText(base, b"")], Totals()).advance(tail)
        given = Totals(0.0, state.totals.log_missed)  # the context is taken as given
        return State(self, reader, state.bundles, state.open_texts, given, unread=state.unread)

    def walk(self, state: State, data: bytes) -> Iterator[State]:
        """The states after each of the bytes. Raises InvalidRequestError where all is followed and it is too much."""
        for place, byte in enumerate(data):
            state = self._advance_by(state, byte, data[place + 1 : place + 1 + _NUM_BYTES_AHEAD])
            yield state

    def _advance_by(self, state: State, byte: int, following: bytes) -> State:
        """The state one byte on; `following` is known of what comes next."""
        log_prob = float(state.next_log_probs[byte])
        late = [string for string in state.unread if string.weigh() >= state.log_mass + log_prob]
        read_all(state.reader, late)
        bundles = [*state.bundles, *(Bundle.open(self._trie, string) for string in late)]
        kept, dropped = self._prune(list(narrow_all(bundles, byte).values()))
        missed = [bundle.log_held for bundle in dropped]
        missed += [string.weigh() for string in state.unread if string not in late]
        heavy, light = self._find_new(kept)
        if kept and not heavy and not light:
            heavy = [self._spell(state.reader, kept[0])]
        drafted = state.drafted
        if any(string.log_probs is None for string in heavy):
            drafted = self._read_ahead(state.reader, heavy, kept, following)
        kept = [bundle for bundle in kept if bundle.goes_on]
        opened = [Bundle.open(self._trie, string) for string in heavy]
        totals = state.totals.add(log_prob, missed)
        return self._fit_window(
            State(self, state.reader, kept + opened, state.open_texts, totals, unread=light, drafted=drafted)
        )

    def _read_ahead(
        self, reader: TokenReader, strings: Sequence[TokenString], bundles: Sequence[Bundle], data: bytes
    ) -> Sequence[TokenString]:
        """Reads the strings, and those below them and the bundles that spell the next bytes. Returns all of them.

        `data` is what is known to come, so most of these are needed; and a few rows more cost a forward pass little.
        """
        wanted = list(strings)
        begun = [(bundle.string, bundle.remaining_bytes) for bundle in bundles] + [(string, b"") for string in strings]
        if len(begun) <= _MAX_STRINGS_READ_AHEAD:
            for string, remaining_bytes in begun:
                wanted += self._iter_below(string, remaining_bytes, data)
        read_all(reader, dict.fromkeys(string for string in wanted if string.num_tokens <= reader.max_tokens))
        return wanted

    def _iter_below(self, string: TokenString, remaining_bytes: bytes, data: bytes) -> Iterator[TokenString]:
        """The longer strings whose tokens spell `remaining_bytes` and a beginning of `data`."""
        for end in range(1, len(data) + 1):
            for token_id in self._trie.find_ids(remaining_bytes + data[:end]):
                child = string.extend([token_id])
                yield child
                yield from self._iter_below(child, b"", data[end:])

    def _prune(self, bundles: list[Bundle]) -> tuple[list[Bundle], list[Bundle]]:
        """The heaviest first, and those that are left out."""
        if self._width is None:
            if len(bundles) > _MAX_BUNDLES:
                raise InvalidRequestError(
                    f"enumerate is for short texts: more than {_MAX_BUNDLES} token strings spell it"
                )
            return bundles, []
        bundles.sort(key=lambda bundle: -bundle.log_held)
        return bundles[: self._width], bundles[self._width :]

    def _find_new(self, bundles: Sequence[Bundle]) -> tuple[list[TokenString], list[TokenString]]:
        """The strings whose last token ends here: those to read, and those below the threshold."""
        log_least = sum_all(np.array([bundle.log_held for bundle in bundles])) + self._log_threshold
        heavy: list[TokenString] = []
        light: list[TokenString] = []
        for bundle in bundles:
            for token_id, log_prob in bundle.find_ended():
                string = bundle.string.extend([token_id])
                string.log_mass = bundle.log_mass + log_prob
                (heavy if string.log_mass >= log_least else light).append(string)
        return heavy, light

    def _spell(self, reader: TokenReader, bundle: Bundle) -> TokenString:
        """The bundle's string with its rest in smaller tokens. Their row is at hand."""
        path = self._encoder.encode_beginning(bundle.remaining_bytes)
        strings = [bundle.string.extend(path[:end]) for end in range(len(path) + 1)]
        read_all(reader, strings)
        for string in strings[1:]:
            string.weigh_after_parent(self._trie.rank)
        for string in strings[:-1]:
            string.log_probs = None
        return strings[-1]

    def _fit_window(self, state: State) -> State:
        """The same state, with less of the text before it where another token would not fit.

        Strings that part too far back from the heaviest of those that end here are given up then.
        """
        num_tokens = {string: string.num_tokens for string in state.unread}  # with the rest spelled in bytes
        num_tokens |= {
            bundle.string: bundle.string.num_tokens + len(bundle.remaining_bytes) for bundle in state.bundles
        }
        max_tokens = state.reader.max_tokens
        if max(num_tokens.values(), default=0) < max_tokens:
            return state
        masses = {bundle.string: bundle.log_ahead for bundle in state.bundles}
        masses |= {string: string.weigh() for string in state.unread}
        ended = [
            *(bundle.string for bundle in state.bundles if not bundle.remaining_bytes),
            *state.unread,
        ]  # any byte can follow
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
        bundles = [bundle.move(moved[bundle.string]) for bundle in state.bundles if bundle.string in moved]
        unread = [moved[string] for string in state.unread if string in moved]
        return State(self, state.reader, bundles, [OpenText(new, b"")], state.totals.add(0.0, missed), unread=unread)
