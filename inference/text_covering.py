"""Coverings by the tokenizer: which token strings are followed is decided by the text alone.

`canonical` follows what the tokenizer can make of the text and something after it: the token tree of
`inference.covering`, kept up byte by byte. `single` is the usual remedy (Vieira et al. 2025, appendix F): all tokens of
the text but the last, which is taken back.

1. The tokens before the heal point stay. Behind it, each offset has one path for each way in which pre-tokens can fall.
2. One more byte narrows the bundles of the paths that are still there. A path that ends with the new byte is one token
   longer than an older one, whose slice holds that token: so its mass is known before it is read.
3. The new paths of all bytes at hand are read in one forward pass; then the masses of each byte follow one by one.
4. A string that the tokenizer would not make is followed while its share is above a threshold: the text behind it is a
   section of its own, with its own heal point and paths. So there may be several sections, each with other tokens
   before it. Of those that are settled up to the same byte, only the heaviest goes on: they would say much the same
   of what comes, and a text's own tokens may by then be the lighter ones.
"""

import codecs
import contextlib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from heapq import nlargest

import numpy as np
import numpy.typing as npt

from inference.bundle import END, NUM_WAYS, Bundle, sum_all
from inference.character_state import Section, State, Tally, find_draft, narrow_all
from inference.covering import find_canonical_paths
from inference.errors import InvalidRequestError
from inference.healing import encode_section, find_section_heal_point
from inference.text_encoder import TextEncoder
from inference.token_string import TokenReader, TokenString, read_all
from trie_cache.trie import Trie

_MAX_SECTIONS = 64
_MAX_BYTES_AT_ONCE = 64  # of known text that are read in one forward pass; each may hold a row of the vocabulary's size
_MAX_DRAFT_BYTES = 16  # there are tokens of sixty dashes
_TOO_LONG = "the text ends in a word or a run of blanks that is longer than the model's window"


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
    """A section, one byte longer than before."""

    strings: Mapping[TokenString, bytes]  # those to follow, and the bytes that are left behind each
    section: Section
    unsettled: Section  # the same, from where it began a byte ago

    @property
    def num_tokens(self) -> int:
        """Of its longest string."""
        return max([string.num_tokens for string in self.strings])


class TextCovering:
    """A covering whose strings the text alone decides, for one tokenizer."""

    def __init__(
        self, encoder: TextEncoder, trie: Trie, find_opening: OpeningFinder, is_nested: bool, threshold: float = 1.0
    ) -> None:
        """`is_nested`: a string that is not followed at one byte is followed at none after it.

        `threshold`: the share from which a string is followed that the tokenizer would not make; 1: none is.
        """
        self._trie = trie
        self._find_opening = lru_cache(maxsize=4096)(lambda tail: find_opening(encoder, trie, tail))
        self._is_nested = is_nested
        self._log_threshold = np.inf if threshold >= 1 else float(np.log(threshold)) if threshold else -np.inf

    def open(self, reader: TokenReader, root: TokenString, context: bytes) -> State:
        """The state after `root` and the context, whose own tokens it takes up to the heal point."""
        opening = self._find_opening(context)
        room = reader.max_tokens - max(map(len, opening.paths)) - _num_bytes_at_once(reader)
        base = root.extend_at_once(opening.settled_ids, min(room, reader.max_tokens * 3 // 4))
        tally = Tally(0.0, -np.inf if self._is_nested else None)
        return self._open_at(reader, Section(base, context[opening.num_settled_bytes :]), tally, is_first=True)

    def walk(self, state: State, data: bytes) -> Iterator[State]:
        """The states after each of the bytes. Raises InvalidRequestError where they cannot be text."""
        num_bytes = _num_bytes_at_once(state.reader)
        for place, byte in enumerate(data):
            state = self._advance_by(state, byte, data[place + 1 : place + num_bytes])
            yield state

    def _advance_by(self, state: State, byte: int, following: bytes) -> State:
        """The state one byte on; `following` is known of what comes next."""
        steps = [self._settle(section.extend(byte)) for section in state.sections]
        if steps[0].num_tokens > state.reader.max_tokens:
            state = self._move_window(state, steps[0].num_tokens - state.sections[0].base.num_tokens)
            steps = [self._settle(state.sections[0].extend(byte))]
        narrowed = narrow_all(state.bundles, byte)
        masses = self._weigh(narrowed, steps)
        chosen = self._choose(steps, narrowed, masses, state.reader.max_tokens)
        followed = {string: rest for step in chosen for string, rest in step.strings.items() if string in masses}
        missed = [log_mass for string, log_mass in masses.items() if string not in followed]
        tally = state.tally.add(float(state.next_log_probs[byte]), missed)
        first = chosen[0]
        if first.section.base.log_mass is None or not all(string in masses for string in first.strings):
            tally = tally.add(0.0, [masses[string] for string in followed if string not in first.strings])
            return self._open_at(state.reader, first.unsettled, tally)  # the pre-tokens fell in a new way
        drafted = state.drafted
        if any(string.log_probs is None for string in followed if string not in narrowed):
            draft = following + find_draft(state.bundles, bytes([byte]) + following)[:_MAX_DRAFT_BYTES]
            drafted = self._read_ahead(state.reader, chosen, draft, narrowed)
        bundles = [narrowed.get(string) or Bundle.open(self._trie, string, rest) for string, rest in followed.items()]
        sections = [step.section for step in chosen]
        return State(self, state.reader, bundles, sections, tally, find_possible(first.section.tail), drafted=drafted)

    def _settle(self, unsettled: Section) -> _Step:
        """A section with the strings to follow in it, and as much of it settled as can be."""
        opening = self._find_opening(unsettled.tail)
        base = unsettled.base.extend(opening.settled_ids)
        strings = {base.extend(path): rest for path, rest in opening.paths.items()}
        return _Step(strings, Section(base, unsettled.tail[opening.num_settled_bytes :]), unsettled)

    def _weigh(self, narrowed: Mapping[TokenString, Bundle], steps: Iterable[_Step]) -> dict[TokenString, float]:
        """The masses of all strings that are left, those that end here included."""
        masses = {string: bundle.log_ahead for string, bundle in narrowed.items()}
        own = {(string.parent, string.token_ids): string for step in steps for string in step.strings}
        for bundle in narrowed.values():
            for token_id, log_prob in bundle.find_ended():
                string = own.get((bundle.string, (token_id,))) or bundle.string.extend([token_id])
                string.log_mass = masses[string] = bundle.log_mass + log_prob
        return masses

    def _choose(
        self,
        steps: Sequence[_Step],
        narrowed: Mapping[TokenString, Bundle],
        masses: Mapping[TokenString, float],
        max_tokens: int,
    ) -> list[_Step]:
        """What goes on, the heaviest first: one section for each byte up to which text is settled.

        The first of the steps fits in the window.
        """
        log_least = self._log_threshold + sum_all(np.array([bundle.log_held for bundle in narrowed.values()]))
        forks = list(self._iter_forks(steps, narrowed, [x for x, log_mass in masses.items() if log_mass >= log_least]))
        fitting = [step for step in (*steps, *forks) if step.num_tokens <= max_tokens]
        weighed: dict[bytes, tuple[float, _Step]] = {}
        for step in fitting:
            log_mass = sum_all(np.array([masses[string] for string in step.strings if string in masses]))
            tail = step.section.tail
            if tail not in weighed or weighed[tail][0] < log_mass:
                weighed[tail] = log_mass, step
        heaviest = nlargest(_MAX_SECTIONS, weighed.values(), key=lambda pair: pair[0])
        return [step for place, (log_mass, step) in enumerate(heaviest) if not place or log_mass >= log_least]

    def _iter_forks(
        self, steps: Sequence[_Step], narrowed: Mapping[TokenString, Bundle], heavy: Sequence[TokenString]
    ) -> Iterator[_Step]:
        """Sections that begin with those heavy strings that no step has."""
        known = {string for step in steps for string in step.strings}
        is_whole = not split_text(steps[0].section.tail)[1]
        for string in heavy:
            rest = narrowed[string].rest if string in narrowed else b""
            begins_character = rest[0] & 0xC0 != 0x80 if rest else is_whole  # within one, no section begins
            if string not in known and begins_character:
                fork = self._settle(Section(string, rest))
                known |= fork.strings.keys()
                yield fork

    def _read_ahead(
        self, reader: TokenReader, steps: Sequence[_Step], data: bytes, held: Container[TokenString]
    ) -> Sequence[TokenString]:
        """Reads what is new in the steps, and in those after them as far as `data` goes. Returns these strings.

        Where the next bytes are not known, those of the heaviest token are taken for a draft: they come more often
        than not, and a few rows more cost a forward pass little.
        """
        fresh = {string: None for step in steps for string in step.strings if string not in held}
        for step in steps:
            with contextlib.suppress(InvalidRequestError):  # a token may begin as UTF-8 does not go on
                for later in self._iter_steps(step.section, data):
                    if later.num_tokens > reader.max_tokens:
                        break
                    fresh |= {string: None for string in later.strings if string not in held}
        read_all(reader, fresh)
        return tuple(fresh)

    def _iter_steps(self, section: Section, data: bytes) -> Iterator[_Step]:
        for byte in data:
            step = self._settle(section.extend(byte))
            section = step.section
            yield step

    def _open_at(self, reader: TokenReader, section: Section, tally: Tally, is_first: bool = False) -> State:
        """The state at the section's end, with nothing known but the mass of its base.

        `is_first`: what is missed so far has not been counted.
        """
        opening = self._find_opening(section.tail)
        paths = [opening.settled_ids + path for path in opening.paths]
        on_the_way = {path[:end] for path in paths for end in range(len(path) + 1)}
        strings = [section.base.extend(path) for path in sorted(on_the_way, key=len)]
        if strings[-1].num_tokens > reader.max_tokens:
            raise InvalidRequestError(_TOO_LONG)
        read_all(reader, strings)
        for string in strings[1:]:
            string.weigh_after_parent(self._trie.rank)
        if is_first and self._is_nested:
            tally = tally.add(0.0, list(self._iter_missed(section, on_the_way, set(paths))))
        bundles = [
            Bundle.open(self._trie, section.base.extend(path), rest)
            for path, rest in zip(paths, opening.paths.values(), strict=True)
        ]
        for string in strings:
            string.log_probs = None  # of those that are only on the way
        base = section.base.extend(opening.settled_ids)
        tail = section.tail[opening.num_settled_bytes :]
        return State(self, reader, bundles, (Section(base, tail),), tally, find_possible(tail))

    def _iter_missed(
        self, section: Section, on_the_way: set[tuple[int, ...]], paths: set[tuple[int, ...]]
    ) -> Iterator[float]:
        """The masses of the strings that leave those on the way, while these have their rows."""
        for path in on_the_way:
            string = section.base.extend(path)
            assert string.log_probs is not None, "it has just been read"
            rest = section.tail[sum(len(self._trie.spell(token_id)) for token_id in path) :]
            interval = self._trie.find_interval(rest)
            num_ended = self._trie.find_children(interval, len(rest)).num_ended
            ended = self._trie.order[interval.lo : interval.lo + num_ended].tolist()
            for token_id in (*self._trie.find_ancestors(rest), *ended):
                if (*path, token_id) not in on_the_way:
                    yield string.weigh() + float(string.log_probs[self._trie.rank[token_id]])
            if path not in paths:
                yield string.weigh() + sum_all(string.log_probs[interval.lo + num_ended : interval.hi])

    def _move_window(self, state: State, num_needed: int) -> State:
        """The same state, with less of the text before it: `num_needed` tokens fit behind its base."""
        max_tokens = state.reader.max_tokens
        base = state.sections[0].base.move_window(min(max_tokens // 2, max_tokens - num_needed))
        if base.num_tokens + num_needed > max_tokens:
            raise InvalidRequestError(_TOO_LONG)
        own = {state.sections[0].base.extend(path) for path in self._find_opening(state.sections[0].tail).paths}
        tally = state.tally.add(0.0, [bundle.log_ahead for bundle in state.bundles if bundle.string not in own])
        return self._open_at(state.reader, Section(base, state.sections[0].tail), tally)


def _num_bytes_at_once(reader: TokenReader) -> int:
    return min(_MAX_BYTES_AT_ONCE, reader.max_tokens // 4)


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
