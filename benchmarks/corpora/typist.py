"""Draws how somebody writes code: which keys, where, in which order and at which times.

No recording of programmers' keys that may be used here is known to us, so keys are drawn around real code. Parts of
files are missing at first and are typed back in: whole lines, ends of lines, and parts inside lines, with the rest of
the file after the cursor. Other parts are selected, deleted and typed again. When all is done, each document is
the file that it was made from. Visits to a place begin with a jump, and alternate between documents.

The proportions follow published counts, as far as there are any:

- In two text editors that people used for their work, about 1/2 of the keys entered text, 1/4 moved the cursor and 1/8
  deleted (Whiteside, Archer, Wixon and Good, "How do people really use text editors?", 1982). Since then a click, a
  search or a jump to a definition replaces many arrow keys. So there is about a third of that share of moves here, 10
  to 12 % of the keys delete, and the rest enters text. Some 3 % are jumps, which are what costs a server most.
  Moves ask for nothing: VS Code asks after edits only. Where the cursor rests, it says so.
- A typist's keys are 240 ms apart on average (Dhakal, Feit, Kristensson and Oulasvirta, "Observations on typing from
  136 million keystrokes", 2018). Times between keys are close to a log-normal distribution; its spread here, 0.45, is
  our assumption, and so are the pauses to think, to read a suggestion and to look for another place. Before the first
  key at a place, the hand returns to the keyboard, which takes 0.4 s (Card, Moran and Newell, "The keystroke-level
  model for user performance time with interactive systems", 1980).
- 27 % of the suggestions that GitHub Copilot shows are accepted (Ziegler et al., "Productivity assessment of neural
  code completion", 2022). Most keys show none, since it waits until the user pauses. Here 3 % of the keys accept one,
  which brings 3 in 10 of the inserted characters.

What is left out: forgotten characters that are put in later, brackets that editors close by themselves, and suggestions
that the user accepts and then corrects.
An accepted suggestion inserts what the file has there, whatever the server has offered: a replay must not depend on the
server that it measures.
"""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache

from tokenizers import Tokenizer

from benchmarks.corpora.cuts import is_word
from benchmarks.corpora.typing import Key, KeyKind, Session
from midtoken.installed import find_bundled_model
from models.training.corpus import SourceFile, iter_held_out

_GAP_SPREAD = 0.45
_MEDIAN_GAPS_S = {
    KeyKind.LETTER: 0.19,
    KeyKind.WORD_END: 0.23,
    KeyKind.NEWLINE: 0.35,
    KeyKind.BACKSPACE: 0.15,
    KeyKind.DELETE: 0.80,
    KeyKind.ACCEPT: 0.90,
    KeyKind.MOVE: 0.15,
    KeyKind.JUMP: 1.80,
}
_HOMING_S = 0.4
_THINKING_SHARE = 0.02  # of the keys of other kinds than jumps
_MEDIAN_THINKING_S = 1.5

_STAYING_SHARE = 0.7  # visits to the document of the visit before
_MISSING_SHARE = 0.7  # visits that type a missing part; the others type a part again
_MAX_MISSING_FRACTION = 0.25  # of a document
_MAX_PART_CHARS = 160
_MAX_LINES = 4
_NUM_TRIES = 50

# For each typed character, the share of those before which something else happens.
_ACCEPT_SHARE = 0.05
_TYPO_SHARE = 0.06
_RETYPE_SHARE = 0.02
_MAX_TYPO_CHARS = 3
_MAX_RETYPED_CHARS = 6
_MAX_STEPS = 4


@dataclass(frozen=True, slots=True)
class SizedFile:
    """A text of about `num_tokens` tokens."""

    text: str
    num_tokens: int  # the size that was asked for


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a finished text, in characters."""

    start: int
    end: int


def draw_session(files: Sequence[SizedFile], num_keys: int, seed: int) -> Session:
    """Draws at least `num_keys` keys, about equally many for each size of file. A seed always gives the same ones."""
    rng = random.Random(seed)
    num_files = Counter(file.num_tokens for file in files)
    typists = [
        _Typist(index, file.text, -(-num_keys // (len(num_files) * num_files[file.num_tokens])), rng)
        for index, file in enumerate(files)
    ]
    documents = tuple(typist.text for typist in typists)
    keys: list[Key] = []
    active = list(typists)
    typist = active[0]
    while active:
        if typist not in active or rng.random() > _STAYING_SHARE:
            typist = rng.choice(active)
        keys += typist.visit()
        if typist.num_keys <= 0 and not typist.missing:
            active.remove(typist)
    return Session(documents, tuple(keys))


@dataclass(eq=False)
class _Typist:
    """Somebody who works on one document."""

    index: int
    finished: str
    num_keys: int  # how many to type at least
    rng: random.Random
    missing: list[_Part] = field(default_factory=list)
    text: str = ""
    cursor: int = 0
    last: KeyKind = KeyKind.JUMP  # of the keys

    def __post_init__(self) -> None:
        max_chars = min(_MAX_MISSING_FRACTION * len(self.finished), self.num_keys / 2)
        while sum(part.end - part.start for part in self.missing) < max_chars:
            part = self._draw_part()
            if part is None:
                break
            self.missing.append(part)
        self.text = self.finished
        for part in sorted(self.missing, key=lambda part: -part.start):
            self.text = self.text[: part.start] + self.text[part.end :]

    def visit(self) -> list[Key]:
        """Goes to one place and works there."""
        is_new = bool(self.missing) and (self.num_keys <= 0 or self.rng.random() < _MISSING_SHARE)
        part = self.rng.choice(self.missing) if is_new else self._draw_part()
        keys = [] if part is None else list(self._work_on(part))
        self.num_keys -= max(len(keys), 1)
        return keys

    def _work_on(self, part: _Part) -> Iterator[Key]:
        typed = self.finished[part.start : part.end]
        start = part.start - sum(each.end - each.start for each in self.missing if each.start < part.start)
        yield from self._go_to(start)
        if part in self.missing:
            self.missing.remove(part)
        else:
            yield self._edit(KeyKind.DELETE, start, start + len(typed), "")
        yield from self._type(typed)

    def _draw_part(self) -> _Part | None:
        """A part that overlaps no missing one; None if none was found."""
        for _ in range(_NUM_TRIES):
            part = _draw_part(self.finished, self.rng)
            if part is not None and all(part.end <= other.start or other.end <= part.start for other in self.missing):
                return part
        return None

    def _go_to(self, place: int) -> Iterator[Key]:
        """A jump to a place near by on the line, and moves from there."""
        stops = [max(place - step, 0) for step in range(self.rng.randint(0, _MAX_STEPS), 0, -1)]
        for number, stop in enumerate([*stops, place]):
            yield self._move(KeyKind.MOVE if number else KeyKind.JUMP, stop)
        self.last = KeyKind.JUMP

    def _type(self, typed: str) -> Iterator[Key]:
        at = 0
        while at < len(typed):
            if typed[at] == "\n":
                size = 1 + _count_indentation(typed, at + 1)
                yield self._insert(KeyKind.NEWLINE, typed[at : at + size])
                at += size
                continue
            accepted = self._draw_accepted(typed, at)
            if accepted:
                yield self._insert(KeyKind.ACCEPT, accepted)
                at += len(accepted)
                continue
            if is_word(typed[at]):
                yield from self._stumble(typed[:at].rpartition("\n")[2])
            yield self._insert(_find_kind(typed[at]), typed[at])
            at += 1

    def _stumble(self, line: str) -> Iterator[Key]:
        """What happens before some characters: nothing, a typo, or second thoughts. `line` is what was typed of it."""
        happening = self.rng.random()
        if happening < _TYPO_SHARE:
            wrong = [self.rng.choice("aeiorstn") for _ in range(self.rng.randint(1, _MAX_TYPO_CHARS))]
            for char in wrong:
                yield self._insert(KeyKind.LETTER, char)
            yield from self._erase(len(wrong))
        elif happening < _TYPO_SHARE + _RETYPE_SHARE and line.strip():
            again = line[-self.rng.randint(1, _MAX_RETYPED_CHARS) :]
            yield from self._erase(len(again))
            for char in again:
                yield self._insert(_find_kind(char), char)

    def _draw_accepted(self, typed: str, at: int) -> str:
        """The rest of the word or of the line, if a suggestion is accepted here; else nothing."""
        if self.rng.random() >= _ACCEPT_SHARE:
            return ""
        rest = typed[at:].partition("\n")[0]
        if self.rng.random() < 0.5:
            rest = rest[: next((index for index, char in enumerate(rest) if not is_word(char)), len(rest))]
        return rest if len(rest) >= 2 else ""

    def _erase(self, num_chars: int) -> Iterator[Key]:
        for _ in range(num_chars):
            yield self._edit(KeyKind.BACKSPACE, self.cursor - 1, self.cursor, "")

    def _insert(self, kind: KeyKind, text: str) -> Key:
        return self._edit(kind, self.cursor, self.cursor, text)

    def _move(self, kind: KeyKind, cursor: int) -> Key:
        self.cursor, self.last = cursor, kind
        return Key(self.index, kind, 0, 0, "", cursor, self._draw_gap_s(kind))

    def _edit(self, kind: KeyKind, start: int, end: int, text: str) -> Key:
        self.cursor = start + len(text)
        gap_s = self._draw_gap_s(kind) + (_HOMING_S if self.last is KeyKind.JUMP else 0.0)
        is_first = self.last in (KeyKind.JUMP, KeyKind.ACCEPT)
        key, self.last = Key(self.index, kind, start, end, text, self.cursor, gap_s, is_first), kind
        self.text = key.apply(self.text)
        return key

    def _draw_gap_s(self, kind: KeyKind) -> float:
        is_thinking = kind is not KeyKind.JUMP and self.rng.random() < _THINKING_SHARE
        median_s = _MEDIAN_THINKING_S if is_thinking else _MEDIAN_GAPS_S[kind]
        return median_s * self.rng.lognormvariate(0, _GAP_SPREAD)


def _draw_part(text: str, rng: random.Random) -> _Part | None:
    """Whole lines half of the time, else the end of a line or a part inside one. None if the place does not suit."""
    at = rng.randrange(len(text))
    line_start, line_end = text.rfind("\n", 0, at) + 1, _find_line_end(text, at)
    choice = rng.random()
    start, end = (line_end, line_end) if choice < 0.5 else (at, line_end)
    if choice < 0.5:
        for _ in range(rng.randint(1, _MAX_LINES)):
            end = _find_line_end(text, end + 1)
    elif choice >= 0.75:
        end = rng.randint(start, line_end)
    part = text[start:end]
    is_suitable = len(part.strip()) >= 3 and len(part) <= _MAX_PART_CHARS and text[line_start:start].strip() != ""
    return _Part(start, end) if is_suitable else None


def _find_line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _count_indentation(text: str, at: int) -> int:
    """The blanks that begin the line at `at`; 0 if the line has nothing else."""
    line = text[at:].partition("\n")[0]
    return len(line) - len(line.lstrip()) if line.strip() else 0


def _find_kind(char: str) -> KeyKind:
    return KeyKind.LETTER if is_word(char) else KeyKind.WORD_END


_SIZES = (300, 1_000, 3_000, 9_000, 19_000, 36_000)  # in tokens
_NUM_EACH = 2
_TOLERANCE = 0.1  # of a size


def draw_typing(num_keys: int, seed: int, min_tokens: int = 0) -> Session:
    """Draws at least `num_keys` keys in files of at least `min_tokens`.

    Sizes are in tokens of the bundled model. The largest is that of joined files, since no file is so long.
    """
    return draw_session([file for file in _find_files() if file.num_tokens >= min_tokens], num_keys, seed)


@cache
def _find_files() -> list[SizedFile]:
    """Up to two held-out files of each size, the nearest first; where none is long enough, several are joined.

    Files with other line ends than a line feed are not used.
    """
    tokenizer = Tokenizer.from_file(str(find_bundled_model() / "tokenizer.json"))
    files = [file for file in iter_held_out() if not {"\r", "\f"} & set(file.text)]
    counted = [(len(tokenizer.encode(file.text, add_special_tokens=False).ids), file) for file in files]
    found = []
    for size in _SIZES:
        near = [(num, file) for num, file in counted if abs(num - size) <= _TOLERANCE * size]
        near.sort(key=lambda each: (abs(each[0] - size), each[1].path))
        found += [SizedFile(file.text, size) for _, file in near[:_NUM_EACH]] or [_join(counted, size)]
    return found


def _join(counted: list[tuple[int, SourceFile]], size: int) -> SizedFile:
    """The longest file that is not too long, the longest that still fits after it, and so on."""
    joined, num_tokens = [], 0
    for num, file in sorted(counted, key=lambda each: (-each[0], each[1].path)):
        if num_tokens + num <= size:
            joined.append(file)
            num_tokens += num
    assert num_tokens >= (1 - _TOLERANCE) * size, "the held-out files are longer together"
    return SizedFile("\n\n".join(file.text for file in joined), size)
