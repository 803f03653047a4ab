"""What declarations of other files gain: right completions with and without them.

Cursors are inside names that another file declares, which is open, too. The default model was not trained on their
packages.
"""

import random
import re
import shutil
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lsprotocol.types import Position, PositionEncodingKind, TextDocumentItem
from rich.progress import track

from benchmarks.corpora.cuts import Cut, iter_runs
from benchmarks.measures.lsp_client import find_place
from benchmarks.measures.report import Figures, find_mean
from benchmarks.measures.teller import list_told, read_project
from inference.engine.sink import CompletionEngine, complete
from inference.protocol.completion import CompletionRequest, Extent
from lsp_server.context import cut_excerpt
from lsp_server.documents import Document
from lsp_server.project.declarations import Declaration
from lsp_server.related import RelatedText, write_comments
from lsp_server.settings import Settings

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
_NUM_EACH = 400  # names that are new, and names that stand before the cursor already
_MIN_FILE_CHARS, _MAX_FILE_CHARS = 400, 60_000
_MIN_NAME_CHARS = 5
_MAX_TYPED_CHARS = 4
_WINDOW_CHARS = 8192  # before the cursor, which the language server sends
_MAX_OWNERS = 3  # a name that more files declare says nothing about one of them
_NUM_OPEN = 4  # other files that are open
_MAX_TOKENS = 16


@dataclass(frozen=True, slots=True)
class _Cut:
    """A cursor inside a name, and the files of the same package that are open beside its own."""

    root: Path  # of the project
    cut: Cut
    open_files: Sequence[Sequence[Declaration]]  # what each declares


@dataclass(frozen=True, slots=True)
class _Place:
    path: str
    start: int
    end: int  # of the name
    owners: tuple[str, ...]  # the other files that declare the name
    is_new: bool  # the text before does not contain it


def measure_related(engine: CompletionEngine, seed: int) -> Figures:
    """Completes at seeded cuts, in equal parts from each package, as the language server would ask."""
    rng, figures = random.Random(seed), dict[str, float | bool | None]()
    cuts: dict[bool, list[_Cut]] = {True: [], False: []}  # in new names, and in names that the text before contains
    with tempfile.TemporaryDirectory(prefix="midtoken-") as name:
        for package in _PACKAGES:
            for is_new, drawn in _draw_cuts(_copy_package(package, Path(name).resolve()), rng).items():
                cuts[is_new] += drawn
        for is_new, drawn in cuts.items():
            kind = "" if is_new else "known_"
            figures[f"num_{kind or 'new_'}names"] = len(drawn)
            for name, is_told in (("without", False), ("with", True)):
                right = [_is_right(engine, each, is_told, name) for each in track(drawn, "completing")]
                figures[f"{kind}right_{name}_context"] = find_mean(right)
    return figures


def _copy_package(package: str, folder: Path) -> Path:
    """Returns the folder of a project that consists of the package."""
    shutil.copytree(Path(sysconfig.get_path("purelib")) / package, folder / package / package)
    return folder / package


def _draw_cuts(root: Path, rng: random.Random) -> dict[bool, list[_Cut]]:
    texts = {path.relative_to(root).as_posix(): path.read_text() for path in sorted(root.rglob("*.py"))}
    files = {path: text for path, text in texts.items() if _MIN_FILE_CHARS < len(text) < _MAX_FILE_CHARS}
    declarations = {path: read_project(root).list_declarations(path) for path in files}
    declared = {path: {each.name for each in some} for path, some in declarations.items()}
    places = [place for path in files for place in _find_places(path, files, declared)]
    cuts = dict[bool, list[_Cut]]()
    for is_new in (True, False):
        wanted = [place for place in places if place.is_new == is_new]
        chosen = rng.sample(wanted, min(len(wanted), -(-_NUM_EACH // len(_PACKAGES))))
        cuts[is_new] = [_cut(place, root, files, declarations, rng) for place in chosen]
    return cuts


def _find_places(path: str, files: Mapping[str, str], declared: Mapping[str, set[str]]) -> Iterator[_Place]:
    text = files[path]
    for kind, start, end in iter_runs(text):
        if kind == "identifier" and start > _MIN_FILE_CHARS and end - start >= _MIN_NAME_CHARS:
            name = text[start:end]
            is_new = re.search(rf"\b{name}\b", text[max(0, start - _WINDOW_CHARS) : start]) is None
            owners = tuple(other for other in files if other != path and name in declared[other])
            if not is_new or 0 < len(owners) <= _MAX_OWNERS:
                yield _Place(path, start, end, owners, is_new)


def _cut(
    place: _Place,
    root: Path,
    files: Mapping[str, str],
    declarations: Mapping[str, Sequence[Declaration]],
    rng: random.Random,
) -> _Cut:
    text, start, end = files[place.path], place.start, place.end
    at = start + rng.randint(1, min(_MAX_TYPED_CHARS, end - start - 1))
    others = [path for path in files if path != place.path and path not in place.owners]
    paths = [rng.choice(place.owners)] if place.is_new else []
    paths += rng.sample(others, min(len(others), _NUM_OPEN - len(paths)))
    rng.shuffle(paths)
    cut = Cut("identifier", place.path, text[:at], text[at:end], text[end:])
    return _Cut(root, cut, [declarations[path] for path in paths])


def _is_right(engine: CompletionEngine, asked: _Cut, is_told: bool, tenant: str) -> bool:
    """True if the name is completed rightly, after each of the keys before in its line."""
    cut, related = asked.cut, RelatedText() if is_told else RelatedText(max_bytes=0)
    line_start = cut.prefix.rfind("\n") + 1
    for at in range(line_start, len(cut.prefix) + 1):  # since a line gets its comments once
        document = _open(cut.path, cut.prefix[:at] + cut.suffix)
        context = cut_excerpt(document, Position(*find_place(cut.prefix, at)), Settings()).context
        sent = related.insert_declarations(context, document, asked.open_files)
    told = list_told(asked.root, cut.path, cut.prefix + cut.suffix, cut.prefix[:line_start]) if is_told else []
    request = CompletionRequest(
        sent,
        suffix=context.suffix,
        max_tokens=_MAX_TOKENS,
        extent=Extent.SINGLE_LINE,
        tenant=tenant,
        related=write_comments(told, "python"),
        path=cut.path if is_told else "",
    )
    return cut.is_solved_by(complete(engine, request)[0])


def _open(path: str, text: str) -> Document:
    return Document(TextDocumentItem(f"file:///{path}", "python", 0, text), PositionEncodingKind.Utf32)
