"""What declarations of other open files gain: right completions with and without them, and what a key costs.

Cursors are inside names that another open file declares, in packages that the default model was not trained on.
"""

import random
import re
import statistics
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lsprotocol.types import PositionEncodingKind, TextDocumentItem
from rich.progress import track

from benchmarks.corpora.cuts import Cut, iter_runs
from benchmarks.corpora.sent_requests import find_position
from inference.engine.sink import CompletionEngine, complete
from inference.protocol.completion import CompletionRequest, Extent
from lsp_server.context import cut_context
from lsp_server.documents import Document, split_lines
from lsp_server.related import RelatedText, find_declarations
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
_MIN_FILE_CHARS, _MAX_FILE_CHARS = 400, 60_000
_MIN_NAME_CHARS = 5
_MAX_TYPED_CHARS = 4
_WINDOW_CHARS = 8192  # before the cursor, which the language server sends
_MAX_OWNERS = 3  # a name that more files declare says nothing about one of them
_NUM_OPEN = 4  # other files that are open
_MAX_KEYS = 3  # that are typed before the one that is measured
_MAX_TOKENS = 16


@dataclass(frozen=True, slots=True)
class RelatedCut:
    """A cursor inside a name, and the files of the same package that are open beside its own."""

    cut: Cut
    open_files: Mapping[str, str]  # path -> text
    is_new: bool  # the text before does not contain the name, and one of the open files declares it


@dataclass(frozen=True, slots=True)
class RelatedOutcome:
    """One cut, completed with and without the text of other files. The times are those of the engine."""

    is_new: bool
    is_right_with: bool
    is_right_without: bool
    ms_with: float
    ms_without: float


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


def measure_related(engine: CompletionEngine, cuts: Sequence[RelatedCut]) -> list[RelatedOutcome]:
    """Completes at each cut after each of the last keys before it, as the language server would ask."""
    outcomes = []
    for number, each in enumerate(track(cuts, "completing")):
        text_without, ms_without = _type(engine, each, RelatedText(max_bytes=0), f"without {number}")
        text_with, ms_with = _type(engine, each, RelatedText(), f"with {number}")
        rights = each.cut.is_solved_by(text_with), each.cut.is_solved_by(text_without)
        outcomes.append(RelatedOutcome(each.is_new, *rights, ms_with, ms_without))
    return outcomes


def find_right_share(outcomes: Iterable[RelatedOutcome], with_related: bool) -> float:
    """Returns the share of right completions."""
    return statistics.mean(each.is_right_with if with_related else each.is_right_without for each in outcomes)


@dataclass(frozen=True, slots=True)
class _Place:
    path: str
    start: int
    end: int  # of the name
    owners: tuple[str, ...]  # the other files that declare the name
    is_new: bool


def _read_package(package: str) -> dict[str, str]:
    root = Path(sysconfig.get_path("purelib"))
    texts = {path.relative_to(root).as_posix(): path.read_text() for path in sorted((root / package).rglob("*.py"))}
    return {path: text for path, text in texts.items() if _MIN_FILE_CHARS < len(text) < _MAX_FILE_CHARS}


def _find_places(path: str, files: Mapping[str, str], declared: Mapping[str, set[str]]) -> Iterator[_Place]:
    text = files[path]
    for kind, start, end in iter_runs(text):
        if kind == "identifier" and start > _MIN_FILE_CHARS and end - start >= _MIN_NAME_CHARS:
            name = text[start:end]
            is_new = re.search(rf"\b{name}\b", text[max(0, start - _WINDOW_CHARS) : start]) is None
            owners = tuple(other for other in files if other != path and name in declared[other])
            if not is_new or 0 < len(owners) <= _MAX_OWNERS:
                yield _Place(path, start, end, owners, is_new)


def _cut(place: _Place, files: Mapping[str, str], rng: random.Random) -> RelatedCut:
    text, start, end = files[place.path], place.start, place.end
    at = start + rng.randint(1, min(_MAX_TYPED_CHARS, end - start - 1))
    others = [path for path in files if path != place.path and path not in place.owners]
    paths = [rng.choice(place.owners)] if place.is_new else []
    paths += rng.sample(others, min(len(others), _NUM_OPEN - len(paths)))
    rng.shuffle(paths)
    cut = Cut("identifier", place.path, text[:at], text[at:end], text[end:], at - start)
    return RelatedCut(cut, {path: files[path] for path in paths}, place.is_new)


def _type(engine: CompletionEngine, related_cut: RelatedCut, related: RelatedText, tenant: str) -> tuple[str, float]:
    """Returns the completion at the cut, and how long it took after the keys before it."""
    cut = related_cut.cut
    others = [_open(path, text) for path, text in related_cut.open_files.items()]
    line = cut.prefix[cut.prefix.rfind("\n") + 1 :]
    text, total_ms = "", 0.0
    for num_missing in range(len(line), -1, -1):  # since a line gets its comments once
        prefix = cut.prefix[: len(cut.prefix) - num_missing]
        document = _open(cut.path, prefix + cut.suffix)
        context = cut_context(document, find_position(prefix, len(prefix)), Settings())
        sent = related.add(context, document, others)
        if num_missing > _MAX_KEYS:
            continue
        request = CompletionRequest(
            sent,
            suffix=context.suffix,
            max_tokens=_MAX_TOKENS,
            extent=Extent.SINGLE_LINE,
            tenant=tenant,
        )
        text, stats = complete(engine, request)
        total_ms = stats.total_ms
    return text, total_ms


def _open(path: str, text: str) -> Document:
    return Document(TextDocumentItem(f"file:///{path}", "python", 0, text), PositionEncodingKind.Utf32)
