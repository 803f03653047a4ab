"""The coverings `canonical` and `single`: the text and its tokenizer decide which token strings are followed.

`canonical` follows what the tokenizer can make of the text and something after it: the token tree of
`inference.healing.covering`, kept up to date byte by byte. `single` follows the text's own tokens, with and without the
last one (the usual remedy; Vieira et al. 2025, appendix F). Both differ only in how they find the paths of a text, in
`inference.characters.open_paths`.

1. The tokens before the heal point are stable. After it, each offset has one path for each boundary set.
2. One more byte narrows the bundles of the paths that still exist. A path that ends with the new byte is an older path
   and one token of its bundle's slice, so its mass is known before it is read.
3. The new paths of all known bytes are read in one forward pass. Then the masses of each byte follow one by one.
4. `canonical` also follows a string that the tokenizer would not write, while its probability among all strings that
   are followed is above a threshold. The text after such a string has a heal point and paths of its own: a second open
   text, with other tokens before it. Among open texts whose tokens are stable up to the same byte only the heaviest is
   followed further, as they say much the same of what comes. It need not be the one that the tokenizer would write.
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

_MAX_OPEN_TEXTS = 64
_MAX_BYTES_AT_ONCE = 64  # of known text, in one forward pass; each may need a row of the vocabulary's size
_MAX_DRAFT_BYTES = 16  # some tokens have sixty dashes
_TOO_LONG = "the text ends in a word or a run of blanks that is longer than the model's window"


@dataclass(frozen=True, slots=True)
class _Extension:
    """An open text, one byte longer than before."""

    strings: Mapping[TokenString, bytes]  # the strings to follow, and the bytes of the text after each
    open_text: OpenText
    previous: OpenText  # the same text, with the stable tokens of the byte before

    @property
    def num_tokens(self) -> int:
        """In its longest string."""
        return max([string.num_tokens for string in self.strings])


class TextCovering:
    """A covering that follows the open paths of the text, for one tokenizer."""

    def __init__(self, trie: Trie, open_paths: OpenPathsCache, is_nested: bool, threshold: float = 1.0) -> None:
        """`is_nested`: a string that is dropped at one byte, and all that extend it, stay dropped.

        `threshold`: a string that is not among the open paths is followed from this probability on; with 1 none is.
        """
        self._trie = trie
        self._open_paths = open_paths
        self._is_nested = is_nested
        self._log_threshold = np.inf if threshold >= 1 else float(np.log(threshold)) if threshold else -np.inf

    def open(self, reader: TokenReader, root: TokenString, context: bytes) -> State:
        """The state after `root` and the context, whose stable tokens are taken as the tokenizer writes them."""
        open_paths = self._open_paths.find(context)
        room = reader.max_tokens - max(map(len, open_paths.paths)) - _num_bytes_at_once(reader)
        base = root.extend_at_once(open_paths.stable_ids, min(room, reader.max_tokens * 3 // 4))
        totals = Totals(0.0, -np.inf if self._is_nested else None)
        return self._open_at(reader, OpenText(base, context[open_paths.num_stable_bytes :]), totals, is_first=True)

    def walk(self, state: State, data: bytes) -> Iterator[State]:
        """The states after each of the bytes. Raises InvalidRequestError where they are not UTF-8."""
        num_bytes = _num_bytes_at_once(state.reader)
        for place, byte in enumerate(data):
            state = self._advance_by(state, byte, data[place + 1 : place + num_bytes])
            yield state

    def _advance_by(self, state: State, byte: int, following: bytes) -> State:
        """The state after one more byte; `following` are the bytes known to come after it."""
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
            return self._open_at(state.reader, first.previous, totals)  # pre-tokens fell in a new way
        drafted = state.drafted
        if any(string.log_probs is None for string in followed if string not in narrowed):
            draft = following + find_draft(state.bundles, bytes([byte]) + following)[:_MAX_DRAFT_BYTES]
            drafted = self._read_ahead(state.reader, chosen, draft, narrowed)
        bundles = [
            narrowed.get(string) or Bundle.open(self._trie, string, remaining_bytes)
            for string, remaining_bytes in followed.items()
        ]
        open_texts = tuple([extension.open_text for extension in chosen])
        possible = find_possible(first.open_text.tail)
        return State(self, state.reader, tuple(bundles), open_texts, totals, possible, drafted=drafted)

    def _extend(self, previous: OpenText) -> _Extension:
        """The strings to follow in this text, and the text after its newest stable tokens."""
        open_paths = self._open_paths.find(previous.tail)
        base = previous.base.extend(open_paths.stable_ids)
        strings = {base.extend(path): remaining_bytes for path, remaining_bytes in open_paths.paths.items()}
        return _Extension(strings, OpenText(base, previous.tail[open_paths.num_stable_bytes :]), previous)

    def _weigh(
        self, narrowed: Mapping[TokenString, Bundle], extensions: Iterable[_Extension]
    ) -> dict[TokenString, float]:
        """The masses of all strings that agree with the text, those that end with it included."""
        masses = {string: bundle.log_ahead for string, bundle in narrowed.items()}
        known = {(string.parent, string.token_ids): string for extension in extensions for string in extension.strings}
        for bundle in narrowed.values():
            for token_id, log_prob in bundle.find_exact():
                string = known.get((bundle.string, (token_id,))) or bundle.string.extend([token_id])
                string.log_mass = masses[string] = bundle.log_mass + log_prob
        return masses

    def _choose(
        self,
        extensions: Sequence[_Extension],
        narrowed: Mapping[TokenString, Bundle],
        masses: Mapping[TokenString, float],
        max_tokens: int,
    ) -> list[_Extension]:
        """The extensions to follow, the heaviest first: one for each byte up to which tokens are stable.

        The first of `extensions` fits in the window.
        """
        log_least = self._log_threshold + sum_all(np.array([bundle.log_interval_mass for bundle in narrowed.values()]))
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
        heaviest = nlargest(_MAX_OPEN_TEXTS, weighed.values(), key=lambda pair: pair[0])
        return [extension for place, (log_mass, extension) in enumerate(heaviest) if not place or log_mass >= log_least]

    def _iter_forks(
        self, extensions: Sequence[_Extension], narrowed: Mapping[TokenString, Bundle], heavy: Sequence[TokenString]
    ) -> Iterator[_Extension]:
        """Extensions for the heavy strings that are in none yet: each is the stable beginning of an open text."""
        known = {string for extension in extensions for string in extension.strings}
        is_whole = not split_text(extensions[0].open_text.tail)[1]
        for string in heavy:
            remaining_bytes = narrowed[string].remaining_bytes if string in narrowed else b""
            # An open text begins with a whole character.
            begins_character = remaining_bytes[0] & 0xC0 != 0x80 if remaining_bytes else is_whole
            if string not in known and begins_character:
                fork = self._extend(OpenText(string, remaining_bytes))
                known |= fork.strings.keys()
                yield fork

    def _read_ahead(
        self, reader: TokenReader, extensions: Sequence[_Extension], data: bytes, held: Container[TokenString]
    ) -> tuple[TokenString, ...]:
        """Reads the new strings of the extensions, and those that `data` will need after them. Returns these strings.

        Where the next bytes are not known, `data` is a draft: the bytes of the heaviest token. They come more often
        than not, and a few more rows hardly slow a forward pass down.
        """
        fresh = {string: None for extension in extensions for string in extension.strings if string not in held}
        for extension in extensions:
            with contextlib.suppress(InvalidRequestError):  # a draft need not be UTF-8
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
        """The state after the open text, of which only the mass of the base is known.

        `is_first`: the masses of the strings that its paths leave out are still to be counted.
        """
        open_paths = self._open_paths.find(open_text.tail)
        paths = [open_paths.stable_ids + path for path in open_paths.paths]
        if open_text.base.num_tokens + max(map(len, paths)) > reader.max_tokens:
            raise InvalidRequestError(_TOO_LONG)
        beginnings = {path[:end] for path in paths for end in range(len(path) + 1)}
        strings = [open_text.base.extend(path) for path in sorted(beginnings, key=len)]
        read_all(reader, strings)
        for string in strings[1:]:
            string.set_log_mass(self._trie.rank)
        if is_first and self._is_nested:
            totals = totals.add(0.0, list(self._iter_dropped(open_text, beginnings, set(paths))))
        bundles = [
            Bundle.open(self._trie, open_text.base.extend(path), remaining_bytes)
            for path, remaining_bytes in zip(paths, open_paths.paths.values(), strict=True)
        ]
        for string in strings:
            string.log_probs = None  # of those that are only beginnings of paths
        base = open_text.base.extend(open_paths.stable_ids)
        tail = open_text.tail[open_paths.num_stable_bytes :]
        return State(self, reader, tuple(bundles), (OpenText(base, tail),), totals, find_possible(tail))

    def _iter_dropped(
        self, open_text: OpenText, beginnings: set[tuple[int, ...]], paths: set[tuple[int, ...]]
    ) -> Iterator[float]:
        """The masses of the strings that leave the paths. The beginnings of paths still have their rows."""
        for path in beginnings:
            string = open_text.base.extend(path)
            assert string.log_probs is not None, "it has just been read"
            remaining_bytes = open_text.tail[sum(len(self._trie.spell(token_id)) for token_id in path) :]
            interval = self._trie.find_interval(remaining_bytes)
            num_exact = self._trie.find_children(interval, len(remaining_bytes)).num_exact
            ended = self._trie.order[interval.lo : interval.lo + num_exact].tolist()
            for token_id in (*self._trie.find_ancestors(remaining_bytes), *ended):
                if (*path, token_id) not in beginnings:
                    yield string.get_log_mass() + float(string.log_probs[self._trie.rank[token_id]])
            if path not in paths:
                yield string.get_log_mass() + sum_all(string.log_probs[interval.lo + num_exact : interval.hi])

    def _move_window(self, state: State, num_needed: int) -> State:
        """The state with older tokens cut off, so that `num_needed` tokens fit after its base."""
        max_tokens = state.reader.max_tokens
        base = state.open_texts[0].base.move_window(min(max_tokens // 2, max_tokens - num_needed))
        if base.num_tokens + num_needed > max_tokens:
            raise InvalidRequestError(_TOO_LONG)
        first = state.open_texts[0]
        kept = {first.base.extend(path) for path in self._open_paths.find(first.tail).paths}
        totals = state.totals.add(0.0, [bundle.log_ahead for bundle in state.bundles if bundle.string not in kept])
        return self._open_at(state.reader, OpenText(base, first.tail), totals)


def _num_bytes_at_once(reader: TokenReader) -> int:
    return min(_MAX_BYTES_AT_ONCE, reader.max_tokens // 4)
