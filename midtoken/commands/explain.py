"""Show what healing does at a cursor, and the completion of each healing strategy."""

import argparse
import asyncio
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.rule import Rule
from rich.text import Text
from rich.tree import Tree

from inference.errors import InvalidRequestError
from inference.likely_text import LikelyText
from inference.protocol.completion import (
    CompletionRequest,
    ExplainedNode,
    Explanation,
    Extent,
    Healing,
)
from lsp_server.context import Context
from midtoken.answer import CONFIDENCE, compute_shares, mark_blanks
from midtoken.api import Completion, read_completion
from midtoken.connection import open_connection
from midtoken.input_text import ClearedText, add_cursor_arguments

_TOKEN_STYLES = ("black on bright_blue", "black on bright_cyan")
_SURE = 0.8  # of ten such texts, eight are right
_BAR_CELLS = 20  # of a share of 100 %


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that `run` reads."""
    add_cursor_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Prints the explanation."""
    text = ClearedText(options)
    cursor = text.read_cursor(options.cursor, options.stdin)
    exact, unexplained, others = asyncio.run(_ask_all(options, text, cursor))
    Console(highlight=False).print(render(options.cursor, cursor, exact, others, unexplained))
    return 0


_Others = dict[Healing, Completion | InvalidRequestError]


async def _ask_all(options: argparse.Namespace, text: ClearedText, cursor: Context) -> tuple[Completion, str, _Others]:
    """Returns the exact answer, why it has no tree, and the answer of each other strategy, or why it has none.

    An engine elsewhere may be asked for less than one with weights. Raises MidtokenError if there is not even the
    completion that an editor gets.
    """
    async with open_connection(options) as connection:
        text.note_languages(connection.description.languages)
        request = CompletionRequest(cursor.prefix, suffix=cursor.suffix, extent=Extent.SINGLE_LINE)

        async def ask(**changes: Any) -> Completion | InvalidRequestError:
            cleared = await asyncio.to_thread(text.clear, replace(request, **changes))
            try:
                return await read_completion(connection.stream(cleared))
            except InvalidRequestError as error:
                return error

        explained, unexplained = await ask(explain=True), ""
        if isinstance(explained, InvalidRequestError):
            explained, unexplained = await ask(), str(explained)
        if isinstance(explained, InvalidRequestError):
            raise explained
        others = {each: await ask(healing=each) for each in [*Healing][1:]}
    return explained, unexplained, others


def render(title: str, cursor: Context, exact: Completion, others: _Others, unexplained: str = "") -> Group:
    """Returns the page: the cursor's line, the tokens, the tree with probabilities, all strategies.

    `unexplained`: why there are no tokens and no tree. Raises ServerError.
    """
    line = Text.assemble((cursor.line_before, "bold"), "▏", (exact.text, "green"))
    line.append("▕" if exact.text and cursor.line_after else "").append(cursor.line_after, "dim")
    return Group(
        Rule(Text(title), align="left", style="dim"),
        line,
        Text(),
        *(() if unexplained else _render_explanation(exact.explanation)),
        _label("likely", _render_likely(exact.likely)),
        Text("\nWhat each strategy completes here", style="dim"),
        _label(f"  {Healing.EXACT}", _render_answer(exact, "green")),
        *(_label(f"  {healing}", _render_answer(answer)) for healing, answer in others.items()),
        *([Text(f"\nNo tokens and no tree: {unexplained}", style="dim")] if unexplained else ()),
    )


def _render_answer(answer: Completion | InvalidRequestError, style: str = "") -> Text:
    if isinstance(answer, InvalidRequestError):
        return Text(f"not here: {answer}", style="dim")
    return Text(_quote(answer.text) if answer.text else "nothing", style)


def _render_explanation(explanation: Explanation) -> Iterator[RenderableType]:
    """Yields the tokens before the cursor, and what healing makes of those that it removes."""
    yield _label("kept", _tokens(explanation.kept_tail))
    yield _label("removed", _tokens(explanation.unhealed_tokens))
    if not explanation.healed_bytes:
        yield _label("healed", Text("nothing: the text ends where a token ends"))
        return
    title = f"{_quote(explanation.healed_bytes)} in one of these tokenizations, with its share of the probability:\n"
    yield _label("healed", Text(title))
    yield _render_tree(explanation)
    yield Text()
    yield _label("chosen", _tokens(explanation.chosen_tokens))


def _label(name: str, value: Text) -> Text:
    return Text.assemble((f"{name:<12} ", "dim"), value)


def _tokens(tokens: tuple[str, ...]) -> Text:
    """Returns the tokens with a line between them, in alternating colours, with blanks and line ends marked."""
    text = Text("" if tokens else "no tokens")
    for index, token in enumerate(tokens):
        text.append("|" if index else "", style="dim").append(mark_blanks(token), style=_TOKEN_STYLES[index % 2])
    return text


def _quote(text: str) -> str:
    return f"‘{mark_blanks(text)}’"


def _render_likely(likely: LikelyText) -> Text:
    """Returns each token with the probability of the text up to its end, and where the text of an editor ends."""
    text = Text()
    for token in likely.read_tokens():
        probability = math.exp(token.text_log_prob)
        style = "bold" if probability >= _SURE else "" if probability >= CONFIDENCE else "dim"
        text.append(_quote(token.text), style=f"green {style}")
        text.append(f" {100 * probability:.0f} %  ", style="dim")
    shown = likely.text[: likely.count_likely(0, CONFIDENCE)]
    note = f"an editor shows {_quote(shown) if shown else 'nothing'} with confidence {CONFIDENCE}"
    return text.append(note if text or not likely.text else "the server reports no probabilities", style="dim")


def _render_tree(explanation: Explanation) -> Tree:
    """Returns the covering tree. The percentage beside a node is the share of its continuation in the mass."""
    branches: list[Tree] = []
    for node, share in zip(explanation.nodes, compute_shares(explanation.nodes), strict=True):
        line = _render_node(node, explanation.healed_bytes, share)
        branches.append(Tree(line) if node.parent is None else branches[node.parent].add(line))
    return branches[0]


def _render_node(node: ExplainedNode, healed: str, share: float | None) -> Text:
    line = Text("kept tokens", "dim") if node.parent is None else Text(_quote(node.token), _TOKEN_STYLES[0])
    if share is None:
        return line.append("  no token of the vocabulary continues from here", style="dim")
    remaining = healed.encode()[node.num_covered_bytes :].decode(errors="backslashreplace")
    following = f"  then ‘{mark_blanks(remaining)}…’ " if remaining else "  then any token "
    return Text.assemble(
        line,
        (following, "dim"),
        (f"{100 * share:6.2f} % ", "bold" if share > 0.1 else ""),
        ("━" * round(_BAR_CELLS * share), "green"),
        ("  most likely ", "dim"),
        (_quote(node.best_token or ""), _TOKEN_STYLES[1]),
    )
