"""Cursors inside names that another open file declares, in packages that the default model was not trained on."""

import io
import keyword
import random
import re
import sysconfig
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from lsp_server.declarations import find_declarations
from lsp_server.documents import split_lines

# Packages of the development environment that are not in models/training/corpus.txt.
_PACKAGES = (
    "cattrs",
    "grimp",
    "huggingface_hub",
    "hypothesis",
    "importlinter",
    "markdown_it",
    "mypy",
    "pygls",
    "pynvim",
    "urllib3",
)
_MIN_FILE_CHARS, _MAX_FILE_CHARS = 400, 60_000
_MIN_NAME_CHARS = 5
_MAX_TYPED_CHARS = 4
_WINDOW_CHARS = 8192  # before the cursor, which the language server sends
_MAX_OWNERS = 3  # a name that more files declare says nothing about one of them
_NUM_OPEN = 4  # other files that are open


@dataclass(frozen=True, slots=True)
class OpenFile:
    """A file that is open in the editor."""

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class RelatedCut:
    """A cursor inside a name, and the files of the same package that are open beside its own."""

    path: str
    prefix: str
    name_end: str  # the part of the name after the cursor
    suffix: str
    open_files: tuple[OpenFile, ...]
    is_new: bool  # the text before does not contain the name, and one of the open files declares it

    def is_solved_by(self, completion: str) -> bool:
        """True if the completion begins with the end of the name, and the name ends there."""
        match = re.match(r"\w*", completion)
        return match is not None and match[0] == self.name_end


def draw_related_cuts(num_new: int, num_known: int, seed: int) -> list[RelatedCut]:
    """Draws seeded cuts, in equal parts from each package: in new names, and in names that the text before contains."""
    rng = random.Random(seed)
    cuts = []
    for package in _PACKAGES:
        files = _read_package(package)
        declared = {path: {each.name for each in find_declarations(split_lines(text))} for path, text in files.items()}
        places = [place for path in files for place in _find_places(path, files, declared)]
        for is_new, count in ((True, num_new), (False, num_known)):
            wanted = [place for place in places if place.is_new == is_new]
            chosen = rng.sample(wanted, min(len(wanted), -(-count // len(_PACKAGES))))
            cuts += [_cut(place, files, rng) for place in chosen]
    return cuts


@dataclass(frozen=True, slots=True)
class _Place:
    path: str
    start: int
    name: str
    owners: tuple[str, ...]  # the other files that declare the name
    is_new: bool


def _read_package(package: str) -> dict[str, str]:
    root = Path(sysconfig.get_path("purelib"))
    texts = {path.relative_to(root).as_posix(): path.read_text() for path in sorted((root / package).rglob("*.py"))}
    return {
        path: text
        for path, text in texts.items()
        if _MIN_FILE_CHARS < len(text) < _MAX_FILE_CHARS and "\f" not in text and "\r" not in text
    }


def _find_places(path: str, files: Mapping[str, str], declared: Mapping[str, set[str]]) -> Iterator[_Place]:
    text = files[path]
    for start, name in _iter_names(text):
        before = text[max(0, start - _WINDOW_CHARS) : start]
        is_new = re.search(rf"\b{name}\b", before) is None
        owners = tuple(other for other in files if other != path and name in declared[other])
        if start > _MIN_FILE_CHARS and (not is_new or 0 < len(owners) <= _MAX_OWNERS):
            yield _Place(path, start, name, owners, is_new)


def _iter_names(text: str) -> Iterator[tuple[int, str]]:
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError):
        return
    for token in tokens:
        is_name = token.type == tokenize.NAME and not keyword.iskeyword(token.string)
        if is_name and len(token.string) >= _MIN_NAME_CHARS:
            yield starts[token.start[0] - 1] + token.start[1], token.string


def _cut(place: _Place, files: Mapping[str, str], rng: random.Random) -> RelatedCut:
    text = files[place.path]
    num_typed = rng.randint(1, min(_MAX_TYPED_CHARS, len(place.name) - 1))
    others = [path for path in files if path != place.path and path not in place.owners]
    paths = [rng.choice(place.owners)] if place.is_new else []
    paths += rng.sample(others, min(len(others), _NUM_OPEN - len(paths)))
    rng.shuffle(paths)
    at, end = place.start + num_typed, place.start + len(place.name)
    open_files = tuple(OpenFile(path, files[path]) for path in paths)
    return RelatedCut(place.path, text[:at], text[at:end], text[end:], open_files, place.is_new)
