"""Show what healing does at a cursor, and the completion of each healing strategy."""

import argparse
import asyncio
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from rich.console import Console, Group
from rich.rule import Rule
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from inference.likely_text import LikelyText
from inference.protocol.completion import (
    CompletionRequest,
    ExplainedFile,
    ExplainedNode,
    Explanation,
    Extent,
    Healing,
    RelatedFile,
)
from lsp_server.context import Context
from lsp_server.privacy.guard import Cleared
from midtoken.answer import CONFIDENCE, Answer, compute_shares, find_style, mark_blanks, read_answer
from midtoken.connection import Connection, open_connection
from midtoken.input_text import ClearedText, add_text_arguments

_TOKEN_STYLES = ("black on bright_blue", "black on bright_cyan")
_BAR_CELLS = 20
_Requests = dict[Healing, Cleared[CompletionRequest]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that `run` reads."""
    parser.add_argument("cursor", metavar="FILE:LINE:COL", help="the cursor; lines and columns count from 1")
    parser.add_argument(
        "--stdin",
        action="store_true",
        help="read the text from standard input, such as an unsaved buffer, not from FILE",
    )
    add_text_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Prints the explanation."""
    text = ClearedText(options)
    cursor = text.read_cursor(options.cursor, options.stdin)
    build = partial(_build_requests, text, options.cursor, cursor)
    requests, answers = asyncio.run(_ask_all(options, build))
    Console().print(render(options.cursor, cursor, answers, requests[Healing.EXACT].value.related))
    return 0


def _build_requests(text: ClearedText, place: str, cursor: Context, connection: Connection) -> _Requests:
    related, path = text.read_related(place, cursor, connection.max_related_bytes, connection.reads_files)
    request = CompletionRequest(
        cursor.prefix, suffix=cursor.suffix, extent=Extent.SINGLE_LINE, related=related, path=path
    )
    return {each: text.clear(replace(request, healing=each, explain=each is Healing.EXACT)) for each in Healing}


def render(title: str, cursor: Context, answers: dict[Healing, Answer], related: tuple[RelatedFile, ...] = ()) -> Group:
    """Returns the page: the cursor's line, the tokens, the tree with probabilities, all strategies, what was told.

    Raises ServerError.
    """
    exact = answers[Healing.EXACT]
    explanation = exact.explanation
    return Group(
        Rule(Text(title), align="left", style="dim"),
        _render_line(cursor, exact.text),
        Text(),
        _label("told", Text(f"{exact.stats.num_related_tokens} of {exact.stats.num_context_tokens} tokens")),
        _label("last kept", _tokens(explanation.kept_tail) if explanation.kept_tail else Text("none")),
        _label("typed since", _tokens(explanation.unhealed_tokens) if explanation.unhealed_tokens else Text("nothing")),
        _label("healed", Text(f"{exact.last.healed_bytes} bytes, to be spelled again by one of these paths:")),
        Text(),
        _render_tree(explanation),
        Text(),
        _label("chosen", _tokens(explanation.chosen_tokens)),
        _label("likely", _render_likely(exact.likely)),
        Text(),
        _render_strategies(answers),
        *_render_told(explanation.related, related),
    )


async def _ask_all(
    options: argparse.Namespace, build: Callable[[Connection], _Requests]
) -> tuple[_Requests, dict[Healing, Answer]]:
    async with open_connection(options) as connection:
        requests = await asyncio.to_thread(build, connection)
        answers = {healing: await read_answer(connection.stream(request)) for healing, request in requests.items()}
    return requests, answers


def _render_line(cursor: Context, completion: str) -> Text:
    line = Text(cursor.line_before, style="bold")
    line.append(completion or "▏", style="green")
    return line.append(cursor.line_after, style="dim")


def _label(name: str, value: Text) -> Text:
    return Text.assemble((f"{name:<12} ", "dim"), value)


def _render_told(files: tuple[ExplainedFile, ...], related: tuple[RelatedFile, ...]) -> Iterator[Text]:
    """Yields what was told of each other file, with its tokens."""
    for file, sent in zip(files, related, strict=True):
        count = "left out" if file.num_tokens is None else f"told in {file.num_tokens} tokens"
        yield Text.assemble("\n", file.path, (f"  {count}", "dim"))
        if file.num_tokens is not None:
            yield Text(sent.text.rstrip("\n"), style="dim")


def _tokens(tokens: tuple[str, ...]) -> Text:
    """Returns the tokens in alternating colours, with blanks and line ends marked."""
    text = Text()
    for index, token in enumerate(tokens):
        text.append(mark_blanks(token), style=_TOKEN_STYLES[index % 2])
    return text


def _render_likely(likely: LikelyText) -> Text:
    """Returns each token with the probability of the text up to its end, and where the text of an editor ends."""
    text = Text()
    for token in likely.read_tokens():
        text.append(mark_blanks(token.text), style=f"green {find_style(token.text_log_prob)}")
        text.append(f" {100 * math.exp(token.text_log_prob):.0f} %  ", style="dim")
    shown = mark_blanks(likely.text[: likely.count_likely(0, CONFIDENCE)]) or "(nothing)"
    is_told = text or not likely.text
    note = f"shown with confidence {CONFIDENCE}: {shown}" if is_told else "the server tells no probabilities"
    return text.append(note, style="dim")


def _render_tree(explanation: Explanation) -> Tree:
    """Returns the covering tree. The percentage beside a node is its share of the mass."""
    branches: list[Tree] = []
    for node, share in zip(explanation.nodes, compute_shares(explanation.nodes), strict=True):
        line = _render_node(node, explanation.healed_bytes, share)
        branches.append(Tree(line) if node.parent is None else branches[node.parent].add(line))
    return branches[0]


def _render_node(node: ExplainedNode, healed: str, share: float | None) -> Text:
    is_root = node.parent is None
    line = Text("kept tokens", style="dim") if is_root else Text(mark_blanks(node.token), style=_TOKEN_STYLES[0])
    if share is None:
        return line.append("  no token of the vocabulary continues from here", style="dim")
    remaining = healed.encode()[node.num_covered_bytes :].decode(errors="backslashreplace")
    following = f"then {mark_blanks(remaining)}…" if remaining else "then any token"
    line.append(f"  {100 * share:6.2f} % ", style="bold" if share > 0.1 else "")
    line.append("━" * round(_BAR_CELLS * share), style="green")
    line.append(f"  {following}  best ", style="dim")
    return line.append(mark_blanks(node.best_token or ""), style=_TOKEN_STYLES[1])


def _render_strategies(answers: dict[Healing, Answer]) -> Table:
    table = Table(title="What each strategy completes here", title_justify="left", title_style="dim")
    for name, justify in (("healing", "left"), ("completion", "left"), ("healed by", "right"), ("in all", "right")):
        table.add_column(name, justify="right" if justify == "right" else "left")
    for healing, answer in answers.items():
        stats = answer.stats
        table.add_row(
            str(healing),
            Text(mark_blanks(answer.text) or "(nothing)", style="green" if healing is Healing.EXACT else ""),
            _count_passes(stats.num_healing_forwards) if stats.num_healing_forwards else "–",
            f"{_count_passes(stats.num_forwards)}, {stats.total_ms:.0f} ms",
        )
    return table


def _count_passes(count: int) -> str:
    return "1 pass" if count == 1 else f"{count} passes"
