"""Coverings by the tokenizer: which token strings are followed is decided by the text alone.

`canonical` follows what the tokenizer can make of the text and something after it: the token tree of
`inference.covering`, kept up byte by byte. `single` is the usual remedy (Vieira et al. 2025, appendix F): all tokens of
the text but the last, which is taken back.

1. The tokens before the heal point stay. Behind it, each offset has one path for each way in which pre-tokens can fall.
2. One more byte narrows the bundles of the paths that are still there. A path that ends with the new byte is one token
   longer than an older one, whose slice holds that token: so its mass is known before it is read.
3. The new paths of all bytes at hand are read in one forward pass; then the masses of each byte follow one by one.
"""

import codecs
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
import numpy.typing as npt

from inference.bundle import END, NUM_WAYS, Bundle
from inference.character_state import Section, State, Tally, find_draft, narrow_all
from inference.covering import find_canonical_paths
from inference.errors import InvalidRequestError
from inference.healing import encode_section, find_section_heal_point
from inference.text_encoder import TextEncoder
from inference.token_string import TokenReader, TokenString, read_all
from trie_cache.trie import Trie

_MAX_BYTES_AT_ONCE = 64  # of known text that are read in one forward pass; each may hold a row of the vocabulary's size


@dataclass(frozen=True, slots=True)
class Opening:
    """The tokens of a section of text, as far as they are known."""

    settled_ids: tuple[int, ...]  # of the first bytes, too far back to matter to what comes
    num_settled_bytes: int
    paths: Mapping[tuple[int, ...], bytes]  # behind them; and the bytes of the section that are left behind each path


OpeningFinder = Callable[[TextEncoder, Trie, bytes], Opening]


def find_canonical_opening(encoder: TextEncoder, trie: Trie, section: bytes) -> Opening:
    """All that the tokenizer can make of the section and something after it."""
    text, unfinished = split_text(section)
    point = find_section_heal_point(encoder, text)
    num_settled = point.num_settled_ids
    kept = point.kept_ids[num_settled:]
    paths = find_canonical_paths(encoder, trie, point, unfinished)
    return Opening(
        point.kept_ids[:num_settled], point.num_settled_bytes, {kept + path: rest for path, rest in paths.items()}
    )


def find_single_opening(encoder: TextEncoder, trie: Trie, section: bytes) -> Opening:
    """The tokens of the section as it stands, with and without the last."""
    text, unfinished = split_text(section)
    point = find_section_heal_point(encoder, text)
    num_settled = point.num_settled_ids
    whole = (encode_section(encoder, text) + encoder.encode_opening(unfinished))[num_settled:]
    rest = section[point.num_settled_bytes :]
    spelled = b"".join(map(trie.spell, whole[:-1]))
    paths = {whole: b""} | ({whole[:-1]: rest[len(spelled) :]} if whole else {})
    return Opening(point.kept_ids[:num_settled], point.num_settled_bytes, paths)


@dataclass(frozen=True, slots=True)
class _Step:
    """What the text says of the state after one more byte."""

    strings: Mapping[TokenString, bytes]  # those to follow, and the bytes that are left behind each
    section: Section


class TextCovering:
    """A covering whose strings the text alone decides, for one tokenizer."""

    def __init__(self, encoder: TextEncoder, trie: Trie, find_opening: OpeningFinder, is_nested: bool) -> None:
        """`is_nested`: a string that is not followed at one byte is followed at none after it."""
        self._trie = trie
        self._find_opening = lru_cache(maxsize=4096)(lambda tail: find_opening(encoder, trie, tail))
        self._is_nested = is_nested

    def open(self, reader: TokenReader, root: TokenString, context: bytes) -> State:
        """The state after `root` and the context, whose own tokens it takes up to the heal point."""
        opening = self._find_opening(context)
        base = root.extend_at_once(opening.settled_ids, reader.max_tokens)
        tally = Tally(0.0, -np.inf if self._is_nested else None)
        return self._open_at(reader, Section(base, context[opening.num_settled_bytes :]), tally)

    def walk(self, state: State, data: bytes) -> Iterator[State]:
        """The states after each of the bytes. Raises InvalidRequestError where they cannot be text."""
        for start in range(0, len(data), _MAX_BYTES_AT_ONCE):
            for state in self._walk_at_once(state, data[start : start + _MAX_BYTES_AT_ONCE]):  # noqa: B020
                yield state

    def _walk_at_once(self, state: State, data: bytes) -> Iterator[State]:
        steps = list(self._iter_steps(state.section, data))
        if max(string.num_tokens for step in steps for string in step.strings) > state.reader.max_tokens:
            state = self._move_window(state)
            steps = list(self._iter_steps(state.section, data))
        drafted = self._read_steps(state, data, steps)
        for byte, step in zip(data, steps, strict=True):
            state = self._advance_by(state, byte, step, drafted)
            yield state

    def _read_steps(self, state: State, data: bytes, steps: Sequence[_Step]) -> Sequence[TokenString]:
        """Reads what is new in the steps. Returns the strings that were read beyond them, for steps to come.

        Where the next byte is not known, the heaviest token is taken for a draft: its bytes are what comes next more
        often than not, and a few rows more cost a forward pass little.
        """
        known = {bundle.string for bundle in state.bundles}
        fresh = dict.fromkeys(string for step in steps for string in step.strings if string not in known)
        if all(string.log_probs is not None for string in fresh):
            return state.drafted
        with contextlib.suppress(InvalidRequestError):  # a token may begin as UTF-8 does not go on
            for step in self._iter_steps(steps[-1].section, find_draft(state.bundles, data)):
                strings = [string for string in step.strings if string not in known]
                if max(string.num_tokens for string in strings) > state.reader.max_tokens:
                    break
                fresh |= dict.fromkeys(strings)
        read_all(state.reader, fresh)
        return tuple(fresh)

    def _iter_steps(self, section: Section, data: bytes) -> Iterator[_Step]:
        for byte in data:
            tail = section.tail + bytes([byte])
            opening = self._find_opening(tail)
            base = section.base.extend(opening.settled_ids)
            section = Section(base, tail[opening.num_settled_bytes :])
            yield _Step({base.extend(path): rest for path, rest in opening.paths.items()}, section)

    def _advance_by(self, state: State, byte: int, step: _Step, drafted: Sequence[TokenString]) -> State:
        """The state one byte on; what is new in it has been read."""
        narrowed = narrow_all(state.bundles, byte)
        fresh = {(string.parent, string.token_ids): string for string in step.strings if string not in narrowed}
        missed = [bundle.log_ahead for string, bundle in narrowed.items() if string not in step.strings]
        for bundle in narrowed.values():
            for token_id, log_prob in bundle.find_ended():
                string = fresh.get((bundle.string, (token_id,)))
                if string is None:
                    missed.append(bundle.log_mass + log_prob)
                else:
                    string.log_mass = bundle.log_mass + log_prob
        tally = state.tally.add(float(state.next_log_probs[byte]), missed)
        if step.section.base.log_mass is None or not all(string.is_ready for string in fresh.values()):
            return self._open_at(state.reader, state.section.extend(byte), tally)  # the pre-tokens fell in a new way
        bundles = [
            narrowed.get(string) or Bundle.open(self._trie, string, rest) for string, rest in step.strings.items()
        ]
        possible = find_possible(step.section.tail)
        return State(self, state.reader, bundles, step.section, tally, possible, drafted=drafted)

    def _open_at(self, reader: TokenReader, section: Section, tally: Tally) -> State:
        """The state at the section's end, with nothing known but the mass of its base."""
        opening = self._find_opening(section.tail)
        paths = [opening.settled_ids + path for path in opening.paths]
        on_the_way = {path[:end] for path in paths for end in range(len(path) + 1)}
        strings = [section.base.extend(path) for path in sorted(on_the_way, key=len)]
        if strings[-1].num_tokens > reader.max_tokens:
            raise InvalidRequestError(
                "the text ends in a word or a run of blanks that is longer than the model's window"
            )
        read_all(reader, strings)
        for string in strings[1:]:
            string.weigh_after_parent(self._trie.rank)
        bundles = [
            Bundle.open(self._trie, section.base.extend(path), rest)
            for path, rest in zip(paths, opening.paths.values(), strict=True)
        ]
        for string in strings:
            string.log_probs = None  # of those that are only on the way
        base = section.base.extend(opening.settled_ids)
        tail = section.tail[opening.num_settled_bytes :]
        return State(self, reader, bundles, Section(base, tail), tally, find_possible(tail))

    def _move_window(self, state: State) -> State:
        """The same state, with less of the text before it."""
        base = state.section.base.move_window(state.reader.max_tokens)
        return self._open_at(state.reader, Section(base, state.section.tail), state.tally)


def split_text(data: bytes) -> tuple[str, bytes]:
    """The characters, and the bytes of one that is not finished. Raises InvalidRequestError."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        text = decoder.decode(data)
    except UnicodeDecodeError as error:
        raise InvalidRequestError(
            f"the text is not UTF-8: {error.reason} at {data[error.start : error.end]!r}"
        ) from None
    return text, decoder.getstate()[0]


def split_whole_text(data: bytes) -> tuple[str, bytes]:
    """The characters up to the first that is not whole or not UTF-8, and the bytes from there on."""
    try:
        return data.decode(), b""
    except UnicodeDecodeError as error:
        return data[: error.start].decode(), data[error.start :]


def find_possible(tail: bytes) -> npt.NDArray[np.bool_]:
    """[257]: which bytes can follow in UTF-8, and whether the text can end."""
    return _find_possible(split_text(tail)[1])


@cache
def _find_possible(unfinished: bytes) -> npt.NDArray[np.bool_]:
    possible = np.zeros(NUM_WAYS, np.bool_)
    possible[END] = not unfinished
    for byte in range(256):
        with contextlib.suppress(InvalidRequestError):
            split_text(unfinished + bytes([byte]))
            possible[byte] = True
    return possible
