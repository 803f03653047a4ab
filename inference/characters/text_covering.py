"""The covering `canonical`, which selects token strings by the text and its tokenizer.

It follows the canonical paths of the text with any continuation: the covering tree of `inference.healing.covering`,
updated byte by byte. The paths depend on the text and the tokenizer, not on the model.

1. The tokens before the heal point are stable. After it, each offset has one path for each split.
2. One more byte narrows the bundles of the paths that still exist. A path that ends with the new byte is an older path
   and one token of its bundle's slice, so its mass is known before it is read.
3. The new paths of all known bytes are read in one forward pass. Then the masses of each byte are computed one by one.
4. A non-canonical string is also followed while its probability among all followed strings is above a threshold. The
   text after such a string has another heal point and other paths: it is a second open text, after other tokens. If
   several open texts have stable tokens up to the same byte, only the most likely is followed, since their predictions
   are similar. It may be a non-canonical one.
"""

import codecs
import contextlib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from heapq import nlargest

import numpy as np
import numpy.typing as npt

from inference.characters.state import (
    END,
    MAX_BYTES_AT_ONCE,
    NUM_OUTCOMES,
    Bundle,
    OpenText,
    State,
    narrow_all,
)
from inference.characters.token_string import TokenReader, TokenString, read_all
from inference.errors import InvalidRequestError
from inference.healing.covering import build_canonical_paths
from inference.healing.heal_point import find_section_heal_point
from inference.healing.text_encoder import TextEncoder
from inference.model.sampler import log_sum_exp
from trie_cache.trie import Trie

_MAX_OPEN_TEXTS = 64
_TOO_LONG = "the text ends in a word or a run of blanks that is longer than the model's window"


def split_text(data: bytes) -> tuple[str, bytes]:
    """The characters, and the bytes of an incomplete one at the end. Raises InvalidRequestError if it is not UTF-8."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        text = decoder.decode(data)
    except UnicodeDecodeError as error:
        raise InvalidRequestError(
            f"the text is not UTF-8: {error.reason} at {data[error.start : error.end]!r}"
        ) from None
    return text, decoder.getstate()[0]


@cache  # an incomplete character has at most three bytes
def find_possible(unfinished: bytes) -> npt.NDArray[np.bool_]:
    """[257]: whether each byte can follow an incomplete character in UTF-8, and whether the text can end here."""
    possible = np.zeros(NUM_OUTCOMES, np.bool_)
    possible[END] = not unfinished
    for byte in range(256):
        with contextlib.suppress(InvalidRequestError):
            split_text(unfinished + bytes([byte]))
            possible[byte] = True
    return possible


@dataclass(frozen=True, slots=True)
class OpenPaths:
    """The stable tokens of a text, and the possible token paths after them."""

    stable_ids: tuple[int, ...]  # the first tokens, which no continuation can change
    num_stable_bytes: int  # the number of bytes that they spell
    paths: Mapping[tuple[int, ...], bytes]  # each path after them -> the remaining bytes


def find_canonical_open_paths(encoder: TextEncoder, trie: Trie, data: bytes) -> OpenPaths:
    """The canonical paths of the text with any continuation. Raises InvalidRequestError if it is not UTF-8."""
    text, unfinished = split_text(data)
    point = find_section_heal_point(encoder, text)
    kept = point.kept_ids[point.num_stable_ids :]
    paths = build_canonical_paths(encoder, trie, point, unfinished)
    return OpenPaths(
        point.kept_ids[: point.num_stable_ids],
        point.num_stable_bytes,
        {kept + path: remaining_bytes for path, remaining_bytes in paths.items()},
    )


@dataclass(frozen=True, slots=True)
class _Extension:
    """An open text, one byte longer than before."""

    strings: Mapping[TokenString, bytes]  # the strings to follow, each with its remaining bytes
    open_text: OpenText
    previous: OpenText  # the same text with the stable tokens of the previous byte

    @property
    def num_tokens(self) -> int:
        """The number of tokens in its longest string."""
        return max([string.num_tokens for string in self.strings])


class TextCovering:
    """A covering that follows the open paths of the text, for one tokenizer."""

    def __init__(self, trie: Trie, find_open_paths: Callable[[bytes], OpenPaths], threshold: float) -> None:
        """`threshold`: a string outside the open paths is followed if it is at least so probable; with 1, none is."""
        self._trie = trie
        self._build_open_paths = find_open_paths
        self._log_threshold = np.inf if threshold >= 1 else float(np.log(threshold)) if threshold else -np.inf

    def open(self, reader: TokenReader, root: TokenString, context: bytes) -> State:
        """The state after `root` and the context, with the stable tokens of the context fixed to the canonical ones."""
        open_paths = self._build_open_paths(context)
        room = reader.max_tokens - max(map(len, open_paths.paths)) - _num_bytes_at_once(reader)
        base = root.extend_at_once(open_paths.stable_ids, min(room, reader.max_tokens * 3 // 4))
        return self._open_at(reader, OpenText(base, context[open_paths.num_stable_bytes :]), 0.0)

    def advance(self, state: State, byte: int, following: bytes) -> State:
        """The state after one more byte. Raises InvalidRequestError if the text is not UTF-8."""
        following = following[: _num_bytes_at_once(state.reader) - 1]
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
        log_probability = state.log_probability + float(state.next_log_probs[byte])
        first = chosen[0]
        if first.open_text.base.log_mass is None or not all(string in masses for string in first.strings):
            return self._open_at(state.reader, first.previous, log_probability)  # the pre-token boundaries have changed
        drafted = state.drafted
        if any(string.log_probs is None for string in followed if string not in narrowed):
            drafted = self._read_ahead(state.reader, chosen, following, narrowed)
        bundles = [
            narrowed.get(string) or Bundle.open(self._trie, string, remaining_bytes)
            for string, remaining_bytes in followed.items()
        ]
        open_texts = tuple([extension.open_text for extension in chosen])
        possible = find_possible(split_text(first.open_text.tail)[1])
        return State(self, state.reader, tuple(bundles), open_texts, log_probability, possible, drafted=drafted)

    def _extend(self, previous: OpenText) -> _Extension:
        """The strings to follow in this text, and the text with its new stable tokens."""
        open_paths = self._build_open_paths(previous.tail)
        base = previous.base.extend(open_paths.stable_ids)
        strings = {base.extend(path): remaining_bytes for path, remaining_bytes in open_paths.paths.items()}
        return _Extension(strings, OpenText(base, previous.tail[open_paths.num_stable_bytes :]), previous)

    def _weigh(
        self, narrowed: Mapping[TokenString, Bundle], extensions: Iterable[_Extension]
    ) -> dict[TokenString, float]:
        """The masses of all strings that agree with the text, including those that end with it."""
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
        """The extensions to follow, most likely first: one for each position where stable tokens end.

        The first of `extensions` must fit in the window.
        """
        log_least = self._log_threshold + log_sum_exp(
            np.array([bundle.log_interval_mass for bundle in narrowed.values()])
        )
        forks = list(
            self._iter_forks(extensions, narrowed, [x for x, log_mass in masses.items() if log_mass >= log_least])
        )
        fitting = [extension for extension in (*extensions, *forks) if extension.num_tokens <= max_tokens]
        weighed: dict[bytes, tuple[float, _Extension]] = {}
        for extension in fitting:
            log_mass = log_sum_exp(np.array([masses[string] for string in extension.strings if string in masses]))
            tail = extension.open_text.tail
            if tail not in weighed or weighed[tail][0] < log_mass:
                weighed[tail] = log_mass, extension
        most_likely = nlargest(_MAX_OPEN_TEXTS, weighed.values(), key=lambda pair: pair[0])
        return [extension for i, (log_mass, extension) in enumerate(most_likely) if not i or log_mass >= log_least]

    def _iter_forks(
        self, extensions: Sequence[_Extension], narrowed: Mapping[TokenString, Bundle], likely: Sequence[TokenString]
    ) -> Iterator[_Extension]:
        """Extensions for the likely strings outside all extensions: each is the stable beginning of an open text."""
        known = {string for extension in extensions for string in extension.strings}
        is_whole = not split_text(extensions[0].open_text.tail)[1]
        for string in likely:
            remaining_bytes = narrowed[string].remaining_bytes if string in narrowed else b""
            # An open text begins with a whole character.
            begins_character = remaining_bytes[0] & 0xC0 != 0x80 if remaining_bytes else is_whole
            if string not in known and begins_character:
                fork = self._extend(OpenText(string, remaining_bytes))
                known |= fork.strings.keys()
                yield fork

    def _read_ahead(
        self, reader: TokenReader, extensions: Sequence[_Extension], data: bytes, existing: Container[TokenString]
    ) -> tuple[TokenString, ...]:
        """Reads the new strings of the extensions and those for `data`, the next bytes. Returns all these strings."""
        fresh = {string: None for extension in extensions for string in extension.strings if string not in existing}
        for extension in extensions:
            with contextlib.suppress(InvalidRequestError):  # the bytes may end to be UTF-8 there
                later = extension
                for byte in data:
                    later = self._extend(later.open_text.extend(byte))
                    if later.num_tokens > reader.max_tokens:
                        break
                    fresh |= {string: None for string in later.strings if string not in existing}
        read_all(reader, fresh)
        return tuple(fresh)

    def _open_at(self, reader: TokenReader, open_text: OpenText, log_probability: float) -> State:
        """The state after the open text, computed from the mass of its base alone."""
        open_paths = self._build_open_paths(open_text.tail)
        paths = [open_paths.stable_ids + path for path in open_paths.paths]
        if open_text.base.num_tokens + max(map(len, paths)) > reader.max_tokens:
            raise InvalidRequestError(_TOO_LONG)
        beginnings = {path[:end] for path in paths for end in range(len(path) + 1)}
        strings = [open_text.base.extend(path) for path in sorted(beginnings, key=len)]
        read_all(reader, strings)
        for string in strings[1:]:
            string.set_log_mass(self._trie.rank)
        bundles = [
            Bundle.open(self._trie, open_text.base.extend(path), remaining_bytes)
            for path, remaining_bytes in zip(paths, open_paths.paths.values(), strict=True)
        ]
        for string in strings:
            string.log_probs = None  # frees the rows of strings that are only beginnings of paths
        base = open_text.base.extend(open_paths.stable_ids)
        tail = open_text.tail[open_paths.num_stable_bytes :]
        possible = find_possible(split_text(tail)[1])
        return State(self, reader, tuple(bundles), (OpenText(base, tail),), log_probability, possible)

    def _move_window(self, state: State, num_needed: int) -> State:
        """The state with its oldest tokens cut off, so that `num_needed` tokens fit after its base."""
        max_tokens = state.reader.max_tokens
        base = state.open_texts[0].base.move_window(min(max_tokens // 2, max_tokens - num_needed))
        if base.num_tokens + num_needed > max_tokens:
            raise InvalidRequestError(_TOO_LONG)
        return self._open_at(state.reader, OpenText(base, state.open_texts[0].tail), state.log_probability)


def _num_bytes_at_once(reader: TokenReader) -> int:
    return min(MAX_BYTES_AT_ONCE, reader.max_tokens // 4)
