"""What the page is sent about healing: as dataclasses, drawn from the answers, and as JSON.

All texts to show are in printable form: blanks, tabs, line ends, control and bidirectional characters are marks.
"""

import dataclasses
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rich.cells import cell_len

from inference.protocol.completion import CompletionStats, ExplainedNode, Explanation, FinishReason, Healing
from midtoken.answer import compute_shares, mark_blanks
from midtoken.api import Completion

_NUM_TYPED_CHARS = 14


@dataclass(frozen=True, slots=True)
class Question:
    """The text around the cursor of the page, after a change."""

    number: int  # answers repeat it; a new question supersedes those before it
    prefix: str
    suffix: str


@dataclass(frozen=True, slots=True)
class Cell:
    """One character of the healed text, or a part of one if tokens divide it."""

    shown: str
    width: int  # columns of a terminal


@dataclass(frozen=True, slots=True)
class SpelledPath:
    """One crossing of the covering tree: the tokens that lead to it, and the best next one, which passes the cursor."""

    token_cells: tuple[int, ...]  # how many cells each token before the crossing covers
    num_shared: int  # how many of these tokens are on a path that comes earlier too
    share: float  # of the probability of all paths, with any token that may come next
    best_share: float  # the same with the best next token alone; the path with the largest is chosen
    next_token: str  # its part beyond the cursor; its other part covers all remaining cells
    is_chosen: bool


@dataclass(frozen=True, slots=True)
class HealingPicture:
    """The exact strategy at the cursor."""

    kept_tokens: tuple[str, ...]  # the last ones
    healed_tokens: tuple[str, ...]  # the tokenizer's own tokens of the healed bytes
    num_healed_bytes: int
    cells: tuple[Cell, ...]  # the healed bytes
    paths: tuple[SpelledPath, ...]
    typed: str  # the end of the cursor's line, for the completions
    times: CompletionStats  # what the exact answer cost


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a completion."""

    shown: str
    probability: float  # of the text with it; it is shown up to this confidence


@dataclass(frozen=True, slots=True)
class StrategyPicture:
    """The completion of one healing strategy."""

    healing: str
    completion: str
    pieces: tuple[Piece, ...]  # of the completion; none if no probabilities are known
    is_cut: bool  # the completion goes on
    num_forwards: int
    took_ms: float  # without the wait for ghost text, which comes first


@dataclass(frozen=True, slots=True)
class Failure:
    """There is no answer, or no more of it."""

    text: str  # for the user


Message = HealingPicture | StrategyPicture | Failure

_KINDS: dict[type[Message], str] = {
    HealingPicture: "healing",
    StrategyPicture: "strategy",
    Failure: "failure",
}


def to_json(number: int, message: Message) -> str:
    """Returns a message about the question of this number as a JSON object; the field `kind` tells them apart."""
    return json.dumps({"number": number, "kind": _KINDS[type(message)], **dataclasses.asdict(message)})


def draw_healing(question: Question, answer: Completion) -> HealingPicture:
    """Returns the picture of an exact answer that was asked for with `explain`. Raises ServerError without one."""
    explanation, prefix = answer.explanation, question.prefix.encode()
    healed = prefix[len(prefix) - answer.last.healed_bytes :]
    edges = _find_edges(healed, explanation.nodes)
    return HealingPicture(
        kept_tokens=tuple(map(mark_blanks, explanation.kept_tail)),
        healed_tokens=tuple(map(mark_blanks, explanation.unhealed_tokens)),
        num_healed_bytes=len(healed),
        cells=tuple(_draw_cells(healed, edges)),
        paths=tuple(_draw_paths(explanation, healed, edges)),
        typed=_draw_line_end(question.prefix),
        times=answer.stats,
    )


def draw_strategy(healing: Healing, answer: Completion) -> StrategyPicture:
    """Returns the picture of one strategy's completion."""
    is_cut = answer.last.finish_reason is FinishReason.LENGTH
    return StrategyPicture(
        healing=str(healing),
        completion=mark_blanks(answer.text),
        pieces=tuple(Piece(mark_blanks(text), probability) for text, probability in answer.likely.find_pieces()),
        is_cut=is_cut,
        num_forwards=answer.stats.num_forwards,
        took_ms=answer.stats.total_ms - answer.stats.queue_ms,
    )


def _draw_line_end(prefix: str) -> str:
    line = prefix[prefix.rfind("\n") + 1 :].lstrip()
    return ("…" if len(line) > _NUM_TYPED_CHARS else "") + mark_blanks(line[-_NUM_TYPED_CHARS:])


def _find_edges(healed: bytes, nodes: Sequence[ExplainedNode]) -> list[int]:
    """Returns where characters or tokens of the tree begin or end in the healed bytes, in order."""
    chars = {at for at, byte in enumerate(healed) if byte & 0xC0 != 0x80}
    return sorted(chars | {0, len(healed)} | {node.num_covered_bytes for node in nodes})


def _draw_cells(healed: bytes, edges: Sequence[int]) -> Iterator[Cell]:
    for start, end in pairwise(edges):
        shown = mark_blanks(healed[start:end].decode(errors="surrogateescape"))
        yield Cell(shown, cell_len(shown))


def _draw_paths(explanation: Explanation, healed: bytes, edges: Sequence[int]) -> Iterator[SpelledPath]:
    """Yields a path for each crossing, parents before their children, so that paths with a beginning in common meet."""
    nodes, shares = explanation.nodes, compute_shares(explanation.nodes)
    shown: set[int] = {0}
    for index in _order(nodes, 0):
        share, node = shares[index], nodes[index]
        if share is None or node.log_mass is None or node.best_log_prob is None:
            continue
        path = _find_path(nodes, index)
        covered = [edges.index(nodes[each].num_covered_bytes) for each in path]
        tokens = tuple(nodes[each].token for each in path[1:])
        yield SpelledPath(
            token_cells=tuple(end - start for start, end in pairwise(covered)),
            num_shared=sum(each in shown for each in path[1:]),
            share=share,
            best_share=share * math.exp(node.best_log_prob - node.log_mass),
            next_token=_find_ahead(node.best_token or "", healed[node.num_covered_bytes :]),
            is_chosen=tokens == explanation.chosen_tokens[:-1],
        )
        shown.update(path)


def _order(nodes: Sequence[ExplainedNode], index: int) -> Iterator[int]:
    yield index
    for child, node in enumerate(nodes):
        if node.parent == index:
            yield from _order(nodes, child)


def _find_path(nodes: Sequence[ExplainedNode], index: int) -> list[int]:
    """Returns the nodes from the root to this one."""
    parent = nodes[index].parent
    return [index] if parent is None else [*_find_path(nodes, parent), index]


def _find_ahead(token: str, remaining: bytes) -> str:
    r"""Returns the part of a token after the remaining bytes. In the token, bytes that are not UTF-8 are \xNN."""
    data = token.encode()
    if data.startswith(remaining):
        return mark_blanks(data[len(remaining) :].decode(errors="backslashreplace"))
    return mark_blanks(token.removeprefix(remaining.decode(errors="backslashreplace")))
