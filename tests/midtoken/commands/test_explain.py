"""The output of `midtoken explain`."""

import io
import math

import pytest
from rich.console import Console

from inference.likely_text import LikelyText
from inference.protocol.completion import (
    CompletionChunk,
    CompletionStats,
    ExplainedFile,
    ExplainedNode,
    Explanation,
    Healing,
    RelatedFile,
)
from lsp_server.context import Context
from midtoken.answer import Answer
from midtoken.commands.explain import render

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
    related=(ExplainedFile("lib/node.py", 52), ExplainedFile("lib/long.py", None)),
)


def _render(*chunks: CompletionChunk) -> str:
    stats = CompletionStats(
        num_forwards=3, num_healing_forwards=1, total_ms=12.0, num_context_tokens=90, num_related_tokens=55
    )
    exact = CompletionChunk("", healed_bytes=4, stats=stats, explanation=_EXPLANATION)
    none = CompletionChunk("", stats=CompletionStats(num_forwards=1))
    likely = LikelyText()
    for chunk in chunks:
        likely.add(chunk)
    answers = {Healing.EXACT: Answer("e:", exact, likely), Healing.NONE: Answer(":", none)}
    console = Console(width=120, record=True, file=io.StringIO())
    related = RelatedFile("lib/node.py", "# class Node: value\n"), RelatedFile("lib/long.py", "# long\n")
    console.print(render("app.py:2", Context("class Node\n  return Nod", "\nrest"), answers, related))
    return "\n".join(line.rstrip() for line in console.export_text().split("\n"))


@pytest.mark.parametrize(
    "shown",
    [
        "75.00 %",  # the share of a node in the mass
        "  return Node:",  # the completion in its place
        "·Node",  # a blank in a token
        "no token of the vocabulary continues from here",
        "told         55 of 90 tokens\n",
        "\nlib/node.py  told in 52 tokens\n# class Node: value\n\nlib/long.py  left out\n",
        "1 pass ",  # of the strategy none
        "e 61 %  : 22 %  shown with confidence 0.45: e",  # how likely the text is
        "3 passes, 12 ms",  # of the strategy exact
    ],
)
def test_the_page_shows_the_tree_the_completion_and_what_each_strategy_costs(shown: str) -> None:
    assert shown in _render(CompletionChunk("e:", 0, (1, 2), (-0.5, -1.5)))


def test_only_of_a_text_without_probabilities_it_says_that_they_are_missing() -> None:
    missing = "the server tells no probabilities"
    assert missing in _render(CompletionChunk("e:"))
    assert missing not in _render()
