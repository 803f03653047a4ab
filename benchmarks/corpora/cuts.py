"""Cursors inside words, operators, blanks and strings of source files."""

import ast
import io
import keyword
import random
import tokenize
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate, takewhile
from pathlib import PurePath

import tree_sitter_go
import tree_sitter_typescript
from tree_sitter import Language, Parser

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
    places: dict[str, list[tuple[SourceFile, str, int, int]]] = {kind: [] for kind in _KINDS}
    for file in files:
        for kind, start, end in iter_runs(file.text):
            if start >= _MIN_CONTEXT_CHARS and end - start >= 2:
                at = rng.randrange(start + 1, end)
                places[kind].append((file, kind, at, end))
    others = [kind for kind in _KINDS if kind != "identifier"]
    counts = {"identifier": num_identifiers, **{kind: num_others // len(others) for kind in others}}
    return [_cut_at(*place) for kind, count in counts.items() for place in rng.sample(places[kind], count)]


def draw_cuts_by_offset(files: Iterable[SourceFile], num_each: int, seed: int) -> list[Cut]:
    """Draws seeded cuts inside identifiers: `num_each` after each number of typed characters up to eight."""
    rng = random.Random(seed)
    identifiers = [
        (file, start, end) for file in files for start, end in _iter_identifiers(file) if start >= _MIN_CONTEXT_CHARS
    ]
    return [
        _cut_at(file, "identifier", start + offset, end)
        for offset in range(1, MAX_OFFSET + 1)
        for file, start, end in rng.sample([each for each in identifiers if each[2] - each[1] > offset], num_each)
    ]


def draw_cuts_in_identifiers(files: Iterable[SourceFile], num_cuts: int, seed: int) -> list[Cut]:
    """Draws seeded cuts inside identifiers: any identifier, and in it any number of typed characters up to eight."""
    rng = random.Random(seed)
    identifiers = [
        (file, start, end)
        for file in files
        for start, end in _iter_identifiers(file)
        if start >= _MIN_CONTEXT_CHARS and end - start > 1
    ]
    return [
        _cut_at(file, "identifier", start + rng.randint(1, min(MAX_OFFSET, end - start - 1)), end)
        for file, start, end in rng.sample(identifiers, num_cuts)
    ]


def _iter_identifiers(file: SourceFile) -> Iterator[tuple[int, int]]:
    """Yields the start and end of each that is not in an import, in characters."""
    extension = PurePath(file.path).suffix
    lines = file.text.split("\n")
    starts = [0, *accumulate(len(line) + 1 for line in lines)]
    if extension == ".py":
        imports = _list_import_lines(file.text)
        for kind, start, end in iter_runs(file.text):
            if kind == "identifier" and bisect_right(starts, start) not in imports:
                yield start, end
        return
    nodes = [Parser(_GRAMMARS[extension]).parse(file.text.encode()).root_node]
    while nodes:
        node = nodes.pop()
        if node.type in _NAMES:
            line, column = node.start_point
            start = starts[line] + len(lines[line].encode()[:column].decode())
            yield start, start + len((node.text or b"").decode(errors="replace"))
        if node.type not in _WITHOUT_NAMES:
            nodes += reversed(node.children)


def _list_import_lines(text: str) -> set[int]:
    """Lines of a Python file that imports stand in, counted from one."""
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
    return {line for node in nodes for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}


_GRAMMARS = {
    ".ts": Language(tree_sitter_typescript.language_typescript()),
    ".tsx": Language(tree_sitter_typescript.language_tsx()),
    ".go": Language(tree_sitter_go.language()),
}
_NAMES = frozenset(
    {
        *("identifier", "type_identifier", "field_identifier", "property_identifier", "private_property_identifier"),
        *("shorthand_property_identifier", "shorthand_property_identifier_pattern"),
    }
)
_WITHOUT_NAMES = frozenset(
    {"package_clause", "import_declaration", "import_statement", "export_clause", "statement_identifier", "comment"}
)


def _cut_at(file: SourceFile, kind: str, at: int, end: int) -> Cut:
    return Cut(kind, file.path, file.text[:at], file.text[at:end], file.text[end:])


def is_word(char: str) -> bool:
    """True for a character of an identifier."""
    return char == "_" or char.isalnum()


_KINDS: dict[str, Callable[[str], bool]] = {
    "identifier": is_word,
    "operator": _OPERATOR_CHARS.__contains__,
    "blank": " \t".__contains__,
    "string": is_word,
}


def _leading_run(text: str, belongs: Callable[[str], bool]) -> str:
    return "".join(takewhile(belongs, text))


def iter_runs(text: str) -> Iterator[tuple[str, int, int]]:
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
        word = _leading_run(text[at:end], is_word)
        if word:
            yield "string", at, at + len(word)
        at += len(word) or 1


_MIN_LINES_BEFORE = 10
_MIN_LINE_CHARS = 6
_MAX_GAP_LINES = 3


class GapKind(StrEnum):
    """What is missing."""

    IDENTIFIER = "identifier"  # the rest of an identifier
    LINE = "line"  # the rest of a line, from anywhere behind its indentation
    BLOCK = "block"  # one to three whole lines, from behind the indentation of the first


@dataclass(frozen=True, slots=True)
class Gap:
    """A text without its middle, which a completion should write."""

    kind: GapKind
    prefix: str
    middle: str
    suffix: str

    def is_filled_by(self, completion: str) -> bool:
        """True if the completion is right.

        For an identifier, it begins with the rest, and the identifier ends there. Otherwise it is the middle, white
        space at its end aside.
        """
        if self.kind is GapKind.IDENTIFIER:
            return _leading_run(completion, is_word) == self.middle
        return completion.rstrip() == self.middle.rstrip()


def draw_gaps(files: Iterable[SourceFile], counts: dict[GapKind, int], seed: int) -> list[Gap]:
    """Draws seeded gaps, so many of each kind."""
    files, rng = list(files), random.Random(seed)
    cuts = draw_cuts(files, counts[GapKind.IDENTIFIER], 0, seed)
    gaps = [Gap(GapKind.IDENTIFIER, cut.prefix, cut.run_end, cut.suffix) for cut in cuts]
    texts = [file.text for file in files if file.text.count("\n") > 2 * _MIN_LINES_BEFORE and "\r" not in file.text]
    for kind in (GapKind.LINE, GapKind.BLOCK):
        gaps += [_draw_lines(rng.choice(texts), kind, rng) for _ in range(counts[kind])]
    return gaps


def _draw_lines(text: str, kind: GapKind, rng: random.Random) -> Gap:
    lines = text.splitlines(keepends=True)
    num_lines = 1 if kind is GapKind.LINE else rng.randint(1, _MAX_GAP_LINES)
    first = rng.choice(
        [
            number
            for number in range(_MIN_LINES_BEFORE, len(lines) - num_lines)
            if len(lines[number].strip()) >= _MIN_LINE_CHARS and lines[number + num_lines - 1].strip()
        ]
    )
    gap = "".join(lines[first : first + num_lines]).removesuffix("\n")
    indent = len(gap) - len(gap.lstrip())
    at = indent if kind is GapKind.BLOCK else rng.randrange(indent + 1, len(gap.rstrip()))
    return Gap(kind, "".join(lines[:first]) + gap[:at], gap[at:], "\n" + "".join(lines[first + num_lines :]))


_CONTEXT_CHARS = 2500  # 400 to 1,000 tokens, so that no contestant has to drop any
_KEYS_BETWEEN = 3
_SUFFIX_CHARS = 700


@dataclass(frozen=True, slots=True)
class Visit:
    """A cursor, the text before it, and the text three keys earlier.

    The text begins with a visible character, because transformers' token healing removes blanks there.
    """

    cut: Cut
    text: str
    suffix: str  # what follows the identifier

    @property
    def earlier_text(self) -> str:
        """What was requested before. No text of another visit begins as this one does."""
        return self.text[:-_KEYS_BETWEEN]


def draw_visits(files: Iterable[SourceFile], num_visits: int, seed: int) -> list[Visit]:
    """Draws seeded visits. At most one is to the beginning of a file, so that its earlier text was never read."""
    visits: list[Visit] = []
    from_start: set[str] = set()
    for cut in draw_cuts(files, 2 * num_visits, 0, seed):
        context = cut.find_context(_CONTEXT_CHARS)
        if len(context) == len(cut.prefix):
            if cut.path in from_start:
                continue
            from_start.add(cut.path)
        visits.append(Visit(cut, context.lstrip(), cut.suffix[:_SUFFIX_CHARS]))
    return visits[:num_visits]
