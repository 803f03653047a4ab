"""The output of `midtoken explain`."""

import io
import math
from pathlib import Path

from rich.console import Console

from inference.protocol.completion import CompletionChunk, CompletionStats, ExplainedNode, Explanation, Healing
from midtoken.answer import Answer
from midtoken.commands.explain import render
from midtoken.input_text import Cursor

_EXPLANATION = Explanation(
    kept_tail=("class", " Node", "\n"),
    healed_bytes=" Nod",
    nodes=(
        ExplainedNode(None, "", 0, math.log(0.3), " Node", math.log(0.3)),
        ExplainedNode(0, " N", 2, math.log(0.1), "odule", math.log(0.05)),
        ExplainedNode(1, "od", 4, None, None, None),
    ),
    chosen_tokens=(" Node",),
    unhealed_tokens=(" N", "od"),
)


def _render() -> str:
    stats = CompletionStats(num_forwards=3, num_healing_forwards=1, total_ms=12.0)
    exact = CompletionChunk("", healed_bytes=4, stats=stats, explanation=_EXPLANATION)
    none = CompletionChunk("", stats=CompletionStats(num_forwards=1))
    answers = {Healing.EXACT: Answer("e:", exact), Healing.NONE: Answer(":", none)}
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(render(Cursor(Path("app.py"), "class Node\n  return Nod", "\nrest"), answers))
    return console.export_text()


def test_each_node_shows_its_share_of_the_mass() -> None:
    assert "75.00 %" in _render()


def test_the_cursor_line_shows_the_completion_in_place() -> None:
    assert "  return Node:" in _render()


def test_blanks_in_tokens_are_visible() -> None:
    assert "·Node" in _render()


def test_a_node_that_no_token_continues_is_marked() -> None:
    assert "no token of the vocabulary continues from here" in _render()


def test_each_strategy_is_shown_with_its_completion_and_cost() -> None:
    page = _render()
    assert "1 pass " in page
    assert "3 passes, 12 ms" in page
