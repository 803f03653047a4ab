"""What declarations of other open files gain: right completions with and without them, and what a key costs."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lsprotocol.types import Position, PositionEncodingKind, TextDocumentItem
from rich.progress import track

from benchmarks.corpora.related_cuts import RelatedCut
from inference.engine.sink import Completer, complete
from inference.protocol.completion import CompletionRequest, Extent
from lsp_server.context import cut_context
from lsp_server.documents import Document
from lsp_server.related import RelatedText
from lsp_server.settings import Settings

_MAX_KEYS = 3  # that are typed before the one that is measured
_MAX_TOKENS = 16


@dataclass(frozen=True, slots=True)
class RelatedOutcome:
    """One cut, completed with and without the text of other files. The times are those of the engine."""

    cut: RelatedCut
    is_right_with: bool
    is_right_without: bool
    ms_with: float
    ms_without: float


def measure_related(engine: Completer, cuts: Sequence[RelatedCut]) -> list[RelatedOutcome]:
    """Completes at each cut after each of the last keys before it, as the language server would ask."""
    return [_measure(engine, cut, str(number)) for number, cut in enumerate(track(cuts, "completing"))]


def find_right_share(outcomes: Iterable[RelatedOutcome], with_related: bool) -> float:
    """Returns the share of right completions."""
    return statistics.mean(each.is_right_with if with_related else each.is_right_without for each in outcomes)


def _measure(engine: Completer, cut: RelatedCut, name: str) -> RelatedOutcome:
    text_without, ms_without = _type(engine, cut, RelatedText(max_bytes=0), f"without {name}")
    text_with, ms_with = _type(engine, cut, RelatedText(), f"with {name}")
    return RelatedOutcome(cut, cut.is_solved_by(text_with), cut.is_solved_by(text_without), ms_with, ms_without)


def _type(engine: Completer, cut: RelatedCut, related: RelatedText, tenant: str) -> tuple[str, float]:
    """Returns the completion at the cut, and how long it took after the keys before it."""
    others = [_open(file.path, file.text) for file in cut.open_files]
    line = cut.prefix[cut.prefix.rfind("\n") + 1 :]
    text, total_ms = "", 0.0
    for num_missing in range(min(_MAX_KEYS, len(line)), -1, -1):
        prefix = cut.prefix[: len(cut.prefix) - num_missing]
        document = _open(cut.path, prefix + cut.suffix)
        position = Position(prefix.count("\n"), len(prefix) - (prefix.rfind("\n") + 1))
        context = cut_context(document, position, Settings())
        request = CompletionRequest(
            related.add(context, document, others),
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
