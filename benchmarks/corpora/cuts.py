"""Cursors inside words, operators, blanks and strings of files that the default model was not trained on."""

import io
import keyword
import random
import tokenize
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from models.training.corpus import SourceFile

MAX_OFFSET = 8
_MIN_CONTEXT_CHARS = 400
_OPERATOR_CHARS = frozenset("=!<>*/+-&|^%:@.")


@dataclass(frozen=True, slots=True)
class Cut:
    """A cursor inside a run of characters of one kind, and the text around it."""

    kind: str  # identifier, operator, blank, string
    path: str
    prefix: str
    run_end: str  # the part of the run after the cursor; never empty
    suffix: str  # the text after the run
    num_typed: int  # characters of the run before the cursor, at least one

    @property
    def is_between_words(self) -> bool:
        """True if the cursor is between two words of a name, as in `read_|lines`, `read|_lines` or `read|Lines`."""
        before, after = self.prefix[-1], self.run_end[0]
        return (before == "_") != (after == "_") or (before.islower() and after.isupper())

    def find_context(self, max_chars: int) -> str:
        """The text before the cursor; if it is longer than `max_chars`, its end, from the start of a line on."""
        if len(self.prefix) <= max_chars:
            return self.prefix
        return self.prefix[self.prefix.find("\n", len(self.prefix) - max_chars) + 1 :]

    def is_solved_by(self, completion: str) -> bool:
        """True if the completion begins with the end of the run, and the run ends there."""
        return _leading_run(completion, _KINDS[self.kind]) == self.run_end


def draw_cuts(files: Iterable[SourceFile], num_identifiers: int, num_others: int, seed: int) -> list[Cut]:
    """Draws seeded cuts: inside identifiers, and in equal parts inside operators, blanks and the words of strings."""
    rng = random.Random(seed)
    places: dict[str, list[tuple[SourceFile, str, int, int, int]]] = {kind: [] for kind in _KINDS}
    for file in files:
        for kind, start, end in _iter_runs(file.text):
            if start >= _MIN_CONTEXT_CHARS and end - start >= 2:
                at = rng.randrange(start + 1, end)
                places[kind].append((file, kind, start, at, end))
    others = [kind for kind in _KINDS if kind != "identifier"]
    counts = {"identifier": num_identifiers, **{kind: num_others // len(others) for kind in others}}
    return [_cut_at(*place) for kind, count in counts.items() for place in rng.sample(places[kind], count)]


def draw_cuts_by_offset(files: Iterable[SourceFile], num_each: int, seed: int) -> list[Cut]:
    """Draws seeded cuts inside identifiers: `num_each` after each number of typed characters up to MAX_OFFSET."""
    rng = random.Random(seed)
    identifiers = [
        (file, start, end)
        for file in files
        for kind, start, end in _iter_runs(file.text)
        if kind == "identifier" and start >= _MIN_CONTEXT_CHARS
    ]
    return [
        _cut_at(file, "identifier", start, start + offset, end)
        for offset in range(1, MAX_OFFSET + 1)
        for file, start, end in rng.sample([each for each in identifiers if each[2] - each[1] > offset], num_each)
    ]


def _cut_at(file: SourceFile, kind: str, start: int, at: int, end: int) -> Cut:
    return Cut(kind, file.path, file.text[:at], file.text[at:end], file.text[end:], at - start)


def _is_word(char: str) -> bool:
    return char == "_" or char.isalnum()


_KINDS: dict[str, Callable[[str], bool]] = {
    "identifier": _is_word,
    "operator": _OPERATOR_CHARS.__contains__,
    "blank": " \t".__contains__,
    "string": _is_word,
}


def _leading_run(text: str, belongs: Callable[[str], bool]) -> str:
    end = next((index for index, char in enumerate(text) if not belongs(char)), len(text))
    return text[:end]


def _iter_runs(text: str) -> Iterator[tuple[str, int, int]]:
    """Yields (kind, start, end) of every run that Python's own tokenizer finds, in characters."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    if "\f" in text or "\r" in text:  # lines would be counted differently
        return
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError):
        return
    for token in tokens:
        start = starts[token.start[0] - 1] + token.start[1]
        end = starts[token.end[0] - 1] + token.end[1]
        if token.type == tokenize.NAME and not keyword.iskeyword(token.string):
            yield "identifier", start, end
        elif token.type == tokenize.OP:
            yield "operator", start, end
        elif token.type == tokenize.INDENT:
            yield "blank", start, end
        elif token.type == tokenize.STRING:
            yield from _iter_words(text, start, end)


def _iter_words(text: str, start: int, end: int) -> Iterator[tuple[str, int, int]]:
    at = start
    while at < end:
        word = _leading_run(text[at:end], _is_word)
        if word:
            yield "string", at, at + len(word)
        at += len(word) or 1
