"""The output of `midtoken explain`."""

import asyncio
import io
import math
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from rich.console import Console

from inference.errors import InvalidRequestError
from inference.protocol.arrays import Array, chunk_to_arrays
from inference.protocol.completion import (
    CompletionChunk,
    CompletionStats,
    ExplainedNode,
    Explanation,
    FinishReason,
    Healing,
)
from lsp_server.context import Context
from midtoken.api import Completion
from midtoken.cli import main
from midtoken.commands.explain import render
from tests.support.fake_triton import ModelCall, run_fake_triton, say

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


def _render(*chunks: CompletionChunk, is_plain: bool = False, **changes: Any) -> str:
    """Returns the page without trailing blanks. `is_plain`: as it is in a pipe."""
    exact = CompletionChunk("", healed_bytes=4, stats=CompletionStats(), explanation=replace(_EXPLANATION, **changes))
    completion = Completion.from_chunks(
        [*(chunks or [CompletionChunk("e:", text_ends=(2,), log_probs=(-0.1,))]), exact]
    )
    refusal = InvalidRequestError("it masks each token")
    others: dict[Healing, Completion | InvalidRequestError] = {
        Healing.GREEDY: refusal,
        Healing.NONE: Completion.from_chunks([CompletionChunk(":")]),
    }
    console = Console(width=120, record=not is_plain, file=io.StringIO())
    console.print(render("app.py:2", Context("class Node\n  return Nod", ")\nrest"), completion, others))
    page = cast("io.StringIO", console.file).getvalue() if is_plain else console.export_text()
    return "\n".join(line.rstrip() for line in page.split("\n"))


@pytest.mark.parametrize(
    "shown",
    [
        "kept tokens  then ‘·Nod…’  75.00 % ",  # the share of a continuation in the mass
        "‘·N’  then ‘od…’ ",
        "most likely ‘·Node’",
        "\n  return Nod▏e:▕)\n",  # the completion in its place, and the cursor
        "\nkept         class|·Node|⏎\nremoved      ·N|od\n",  # where tokens end
        "no token of the vocabulary continues from here",
        "likely       ‘e’ 61 %  ‘:’ 22 %  an editor shows ‘e’ with confidence 0.55",
        "\n  exact      ‘e:’\n  greedy     not here: it masks each token\n",
        "\n  none       ‘:’\n",
    ],
)
@pytest.mark.parametrize("is_plain", [False, True])
def test_the_page_shows_the_tree_the_completion_and_that_of_each_strategy(shown: str, is_plain: bool) -> None:
    assert shown in _render(CompletionChunk("e:", 0, (1, 2), (-0.5, -1.5)), is_plain=is_plain)


def test_only_of_a_text_without_probabilities_it_says_that_they_are_missing() -> None:
    missing = "the server reports no probabilities"
    assert missing in _render(CompletionChunk("e:"))
    assert missing not in _render()


def test_where_nothing_is_healed_there_is_no_tree() -> None:
    page = _render(healed_bytes="", unhealed_tokens=())
    assert "removed      no tokens\nhealed       nothing: the text ends where a token ends\nlikely " in page
    assert "kept tokens" not in page


@pytest.mark.parametrize("refused", ["explain", "healing"])
async def test_what_an_engine_cannot_say_is_named_and_the_rest_is_shown(
    refused: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def answer(call: ModelCall) -> AsyncGenerator[Mapping[str, Array] | str, None]:
        is_refused = refused in call.arrays and call.arrays[refused].item() in (True, b"greedy")
        chunk = CompletionChunk("e", text_ends=(1,), log_probs=(-0.1,), explanation=_EXPLANATION)
        done = replace(chunk, finish_reason=FinishReason.LENGTH, stats=CompletionStats())
        async for each in say("invalid request: not with this engine" if is_refused else chunk_to_arrays(done))(call):
            yield each

    (tmp_path / "app.py").write_text("return Nod")
    async with run_fake_triton(answer) as server:
        status = await asyncio.to_thread(main, ["explain", f"{tmp_path}/app.py:1", "--server", server.url])
    page = capsys.readouterr().out
    assert (status, "  exact      ‘e’\n" in page, "  none       ‘e’\n" in page) == (0, True, True)
    assert ("removed      ·N|od\n" in page) == (refused == "healing")
    assert ("No tokens and no tree: not with this engine\n" in page) == (refused == "explain")
    assert ("  greedy     not here: not with this engine\n" in page) == (refused == "healing")
