"""Coverings by the tokenizer: which token strings are followed is decided by the text alone.

`canonical` follows what the tokenizer can make of the text and something after it: the token tree of
`inference.healing.covering`, kept up byte by byte. `single` is the usual remedy (Vieira et al. 2025, appendix F): all
tokens of the text but the last, which is taken back.

1. The tokens before the heal point stay. Behind it, each offset has one path for each way in which pre-tokens can fall.
2. One more byte narrows the bundles of the paths that are still there. A path that ends with the new byte is one token
   longer than an older one, whose slice holds that token: so its mass is known before it is read.
3. The new paths of all bytes at hand are read in one forward pass; then the masses of each byte follow one by one.
4. A string that the tokenizer would not make is followed while its share is above a threshold: the text behind it is a
   section of its own, with its own heal point and paths. So there may be several sections, each with other tokens
   before it. Of those that are settled up to the same byte, only the heaviest goes on: they would say much the same
   of what comes, and a text's own tokens may by then be the lighter ones.
"""

import contextlib
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest

import numpy as np

from inference.characters.bundle import Bundle, sum_all
from inference.characters.open_paths import OpenPathsCache
from inference.characters.state import OpenText, State, Totals, find_draft, narrow_all
from inference.characters.token_string import TokenReader, TokenString, read_all
from inference.characters.utf8 import find_possible, split_text
from inference.errors import InvalidRequestError
from trie_cache.trie import Trie

_MAX_SECTIONS = 64
_MAX_BYTES_AT_ONCE = 64  # of known text that are read in one forward pass; each may hold a row of the vocabulary's size
_MAX_DRAFT_BYTES = 16  # there are tokens of sixty dashes
_TOO_LONG = "the text ends in a word or a run of blanks that is longer than the model's window"


@dataclass(frozen=True, slots=True)
class _Extension:
    """A section, one byte longer than before."""

    strings: Mapping[TokenString, bytes]  # those to follow, and the bytes that are left behind each
    open_text: OpenText
    previous: OpenText  # the same, from where it began a byte ago

    @property
    def num_tokens(self) -> int:
        """Of its longest string."""
        return max([string.num_tokens for string in self.strings])


class TextCovering:
    """A covering whose strings the text alone decides, for one tokenizer."""

    def __init__(self, trie: Trie, open_paths: OpenPathsCache, is_nested: bool, threshold: float = 1.0) -> None:
        """`is_nested`: a string that is not followed at one byte is followed at none after it.

        `threshold`: the share from which a string is followed that the tokenizer would not make; 1: none is.
        """
        self._trie = trie
        self._open_paths = open_paths
        self._is_nested = is_nested
        self._log_threshold = np.inf if threshold >= 1 else float(np.log(threshold)) if threshold else -np.inf

    def open(self, reader: TokenReader, root: TokenString, context: bytes) -> State:
        """The state after `root` and the context, whose own tokens it takes up to the heal point."""
        open_paths = self._open_paths.find(context)
        room = reader.max_tokens - max(map(len, open_paths.paths)) - _num_bytes_at_once(reader)
        base = root.extend_at_once(open_paths.stable_ids, min(room, reader.max_tokens * 3 // 4))
        totals = Totals(0.0, -np.inf if self._is_nested else None)
        return self._open_at(reader, OpenText(base, context[open_paths.num_stable_bytes :]), totals, is_first=True)

    def walk(self, state: State, data: bytes) -> Iterator[State]:
        """The states after each of the bytes. Raises InvalidRequestError where they cannot be text."""
        num_bytes = _num_bytes_at_once(state.reader)
        for place, byte in enumerate(data):
            state = self._advance_by(state, byte, data[place + 1 : place + num_bytes])
            yield state

    def _advance_by(self, state: State, byte: int, following: bytes) -> State:
        """The state one byte on; `following` is known of what comes next."""
        extensions = [self._extend(open_text.extend(byte)) for open_text in state.open_texts]
        if extensions[0].num_tokens > state.reader.max_tokens:
            state = self._move_window(state, extensions[0].num_tokens - state.open_texts[0].base.num_tokens)
            extensions = [self._extend(state.open_texts[0].extend(byte))]
        narrowed = narrow_all(state.bundles, byte)
        masses = self._weigh(narrowed, extensions)
        chosen = self._choose(extensions, narrowed, masses, state.reader.max_tokens)
        followed = {
            string: remaining_bytes
            for extension in chosen
            for string, remaining_bytes in extension.strings.items()
            if string in masses
        }
        missed = [log_mass for string, log_mass in masses.items() if string not in followed]
        totals = state.totals.add(float(state.next_log_probs[byte]), missed)
        first = chosen[0]
        if first.open_text.base.log_mass is None or not all(string in masses for string in first.strings):
            totals = totals.add(0.0, [masses[string] for string in followed if string not in first.strings])
            return self._open_at(state.reader, first.previous, totals)  # the pre-tokens fell in a new way
        drafted = state.drafted
        if any(string.log_probs is None for string in followed if string not in narrowed):
            draft = following + find_draft(state.bundles, bytes([byte]) + following)[:_MAX_DRAFT_BYTES]
            drafted = self._read_ahead(state.reader, chosen, draft, narrowed)
        bundles = [
            narrowed.get(string) or Bundle.open(self._trie, string, remaining_bytes)
            for string, remaining_bytes in followed.items()
        ]
        open_texts = [extension.open_text for extension in chosen]
        return State(
            self, state.reader, bundles, open_texts, totals, find_possible(first.open_text.tail), drafted=drafted
        )

    def _extend(self, previous: OpenText) -> _Extension:
        """A section with the strings to follow in it, and as much of it settled as can be."""
        open_paths = self._open_paths.find(previous.tail)
        base = previous.base.extend(open_paths.stable_ids)
        strings = {base.extend(path): remaining_bytes for path, remaining_bytes in open_paths.paths.items()}
        return _Extension(strings, OpenText(base, previous.tail[open_paths.num_stable_bytes :]), previous)

    def _weigh(
        self, narrowed: Mapping[TokenString, Bundle], extensions: Iterable[_Extension]
    ) -> dict[TokenString, float]:
        """The masses of all strings that are left, those that end here included."""
        masses = {string: bundle.log_ahead for string, bundle in narrowed.items()}
        own = {(string.parent, string.token_ids): string for extension in extensions for string in extension.strings}
        for bundle in narrowed.values():
            for token_id, log_prob in bundle.find_ended():
                string = own.get((bundle.string, (token_id,))) or bundle.string.extend([token_id])
                string.log_mass = masses[string] = bundle.log_mass + log_prob
        return masses

    def _choose(
        self,
        extensions: Sequence[_Extension],
        narrowed: Mapping[TokenString, Bundle],
        masses: Mapping[TokenString, float],
        max_tokens: int,
    ) -> list[_Extension]:
        """What goes on, the heaviest first: one section for each byte up to which text is settled.

        The first of the steps fits in the window.
        """
        log_least = self._log_threshold + sum_all(np.array([bundle.log_held for bundle in narrowed.values()]))
        forks = list(
            self._iter_forks(extensions, narrowed, [x for x, log_mass in masses.items() if log_mass >= log_least])
        )
        fitting = [extension for extension in (*extensions, *forks) if extension.num_tokens <= max_tokens]
        weighed: dict[bytes, tuple[float, _Extension]] = {}
        for extension in fitting:
            log_mass = sum_all(np.array([masses[string] for string in extension.strings if string in masses]))
            tail = extension.open_text.tail
            if tail not in weighed or weighed[tail][0] < log_mass:
                weighed[tail] = log_mass, extension
        heaviest = nlargest(_MAX_SECTIONS, weighed.values(), key=lambda pair: pair[0])
        return [extension for place, (log_mass, extension) in enumerate(heaviest) if not place or log_mass >= log_least]

    def _iter_forks(
        self, extensions: Sequence[_Extension], narrowed: Mapping[TokenString, Bundle], heavy: Sequence[TokenString]
    ) -> Iterator[_Extension]:
        """Sections that begin with those heavy strings that no step has."""
        known = {string for extension in extensions for string in extension.strings}
        is_whole = not split_text(extensions[0].open_text.tail)[1]
        for string in heavy:
            remaining_bytes = narrowed[string].remaining_bytes if string in narrowed else b""
            begins_character = (
                remaining_bytes[0] & 0xC0 != 0x80 if remaining_bytes else is_whole
            )  # within one, no section begins
            if string not in known and begins_character:
                fork = self._extend(OpenText(string, remaining_bytes))
                known |= fork.strings.keys()
                yield fork

    def _read_ahead(
        self, reader: TokenReader, extensions: Sequence[_Extension], data: bytes, held: Container[TokenString]
    ) -> Sequence[TokenString]:
        """Reads what is new in the steps, and in those after them as far as `data` goes. Returns these strings.

        Where the next bytes are not known, those of the heaviest token are taken for a draft: they come more often
        than not, and a few rows more cost a forward pass little.
        """
        fresh = {string: None for extension in extensions for string in extension.strings if string not in held}
        for extension in extensions:
            with contextlib.suppress(InvalidRequestError):  # a token may begin as UTF-8 does not go on
                for later in self._iter_extensions(extension.open_text, data):
                    if later.num_tokens > reader.max_tokens:
                        break
                    fresh |= {string: None for string in later.strings if string not in held}
        read_all(reader, fresh)
        return tuple(fresh)

    def _iter_extensions(self, open_text: OpenText, data: bytes) -> Iterator[_Extension]:
        for byte in data:
            extension = self._extend(open_text.extend(byte))
            open_text = extension.open_text
            yield extension

    def _open_at(self, reader: TokenReader, open_text: OpenText, totals: Totals, is_first: bool = False) -> State:
        """The state at the section's end, with nothing known but the mass of its base.

        `is_first`: what is missed so far has not been counted.
        """
        open_paths = self._open_paths.find(open_text.tail)
        paths = [open_paths.stable_ids + path for path in open_paths.paths]
        if open_text.base.num_tokens + max(map(len, paths)) > reader.max_tokens:
            raise InvalidRequestError(_TOO_LONG)
        on_the_way = {path[:end] for path in paths for end in range(len(path) + 1)}
        strings = [open_text.base.extend(path) for path in sorted(on_the_way, key=len)]
        read_all(reader, strings)
        for string in strings[1:]:
            string.weigh_after_parent(self._trie.rank)
        if is_first and self._is_nested:
            totals = totals.add(0.0, list(self._iter_missed(open_text, on_the_way, set(paths))))
        bundles = [
            Bundle.open(self._trie, open_text.base.extend(path), remaining_bytes)
            for path, remaining_bytes in zip(paths, open_paths.paths.values(), strict=True)
        ]
        for string in strings:
            string.log_probs = None  # of those that are only on the way
        base = open_text.base.extend(open_paths.stable_ids)
        tail = open_text.tail[open_paths.num_stable_bytes :]
        return State(self, reader, bundles, (OpenText(base, tail),), totals, find_possible(tail))

    def _iter_missed(
        self, open_text: OpenText, on_the_way: set[tuple[int, ...]], paths: set[tuple[int, ...]]
    ) -> Iterator[float]:
        """The masses of the strings that leave those on the way, while these have their rows."""
        for path in on_the_way:
            string = open_text.base.extend(path)
            assert string.log_probs is not None, "it has just been read"
            remaining_bytes = open_text.tail[sum(len(self._trie.spell(token_id)) for token_id in path) :]
            interval = self._trie.find_interval(remaining_bytes)
            num_ended = self._trie.find_children(interval, len(remaining_bytes)).num_ended
            ended = self._trie.order[interval.lo : interval.lo + num_ended].tolist()
            for token_id in (*self._trie.find_ancestors(remaining_bytes), *ended):
                if (*path, token_id) not in on_the_way:
                    yield string.weigh() + float(string.log_probs[self._trie.rank[token_id]])
            if path not in paths:
                yield string.weigh() + sum_all(string.log_probs[interval.lo + num_ended : interval.hi])

    def _move_window(self, state: State, num_needed: int) -> State:
        """The same state, with less of the text before it: `num_needed` tokens fit behind its base."""
        max_tokens = state.reader.max_tokens
        base = state.open_texts[0].base.move_window(min(max_tokens // 2, max_tokens - num_needed))
        if base.num_tokens + num_needed > max_tokens:
            raise InvalidRequestError(_TOO_LONG)
        own = {state.open_texts[0].base.extend(path) for path in self._open_paths.find(state.open_texts[0].tail).paths}
        totals = state.totals.add(0.0, [bundle.log_ahead for bundle in state.bundles if bundle.string not in own])
        return self._open_at(state.reader, OpenText(base, state.open_texts[0].tail), totals)


def _num_bytes_at_once(reader: TokenReader) -> int:
    return min(_MAX_BYTES_AT_ONCE, reader.max_tokens // 4)
