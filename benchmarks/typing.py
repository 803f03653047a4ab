"""What ghost text is worth to somebody who types: keys saved, and wrong characters on the screen.

    python -m benchmarks.typing [--output PATH] [--only PART ...] [--short]

`benchmarks.measures.typing_trial` types held-out lines into the language server, which asks the default model, and asks
at cursors anywhere in other lines. The parts `below` and `above` do so with the text below the line and without,
`curve` with the text below at other confidences. `…_none` is without healing at the default confidence, `…_none_all` at
confidence 0.

`…_infill`: llama.cpp's server with the same weights, asked as llama.vim asks it. The server lays the text out in an
order that this model was not trained with, so almost nothing is right; 30 lines and cursors show that, and the targets
do not compare with it.
`…_llama_server`: the same server continues the text before the cursor, greedily. Of both, only the first line counts,
and a key that agrees with an answer needs no request.
"""

import argparse
import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from aiohttp import ClientSession

from benchmarks.baselines.servers import run_llama_server
from benchmarks.measures.report import Figures, Part, Target, run_parts
from benchmarks.measures.typing_trial import Cursors, Line, Trial, Typist, draw_lines, run_trials
from lsp_server.settings import Settings
from midtoken.connection import Connection, open_connection
from midtoken.server_arguments import add_connection_arguments
from models.training.corpus import iter_held_out
from tests.support.front_clients import read_sent

_NUM_LINES, _NUM_CURVE_LINES, _NUM_INFILL, _NUM_SHORT = 300, 100, 30, 1
_TYPED_SEED, _ASKED_SEED = 101, 102
_DEFAULT = Settings().confidence
_CURVE = (0.0, 0.2, 0.3, 0.4, 0.45, 0.5, 0.6)
_PREFIX_CHARS, _SUFFIX_CHARS = 2000, 500  # as many as the model was trained with
_NAMES = {("exact", _DEFAULT): "", ("exact", 0.0): "_all", ("none", _DEFAULT): "_none", ("none", 0.0): "_none_all"}


def _build_targets(part: str) -> Sequence[Target]:
    where, text = f"_{part}", "with the text below" if part == "below" else "without the text below"
    targets = (
        Target(f"saved{where}", "keys saved by Tab", at_least=0.44),
        Target(f"saved_word{where}", "keys saved with accept-word", at_least=0.48),
        Target(f"wrong_chars_per_key{where}", "wrong characters on the screen at a key", at_most=2),
        Target(f"shown_right_share{where}", "shown texts that are wholly right", at_least=0.7),
        Target(f"flicker{where}", "ghost texts that changed at an agreeing key", at_most=0),
        Target(f"saved_to_llama_server{where}", "keys saved, to llama-server's", at_least=2),
        Target(f"saved_to_none{where}", "keys saved, to no healing's at the same confidence", at_least=2),
        Target(f"saved_to_none_all{where}", "keys saved, to no healing's at confidence 0", at_least=2),
    )
    return [replace(target, meaning=f"{target.meaning}, {text}") for target in targets]


def main() -> None:
    parts: dict[str, Part] = {
        "below": lambda is_short: _run(partial(_measure, "below", _draw_lines(is_short))),
        "above": lambda is_short: _run(
            partial(_measure, "above", [_cut_below(some) for some in _draw_lines(is_short)])
        ),
        "curve": lambda is_short: _run(partial(_draw_curve, _draw_lines(is_short)[0][:_NUM_CURVE_LINES])),
    }
    run_parts("typing", parts, [*_build_targets("below"), *_build_targets("above")])


def _draw_lines(is_short: bool) -> list[list[Line]]:
    """The lines that are typed, and those in which is asked."""
    texts = [file.text for file in iter_held_out()]
    typed, asked = ([*draw_lines(texts, _NUM_LINES, seed)] for seed in (_TYPED_SEED, _ASKED_SEED))
    return [typed[:_NUM_SHORT], asked[:_NUM_SHORT]] if is_short else [typed, asked]


def _cut_below(lines: Sequence[Line]) -> list[Line]:
    return [replace(line, after="") for line in lines]


def _run(measure: Callable[..., Any]) -> Figures:
    with TemporaryDirectory() as folder:
        figures: Figures = asyncio.run(_connect(measure, Path(folder)))
        return figures


async def _connect(measure: Callable[..., Any], folder: Path) -> Any:
    parser = argparse.ArgumentParser()
    add_connection_arguments(parser)
    options = parser.parse_args([f"--state-dir={folder}"])
    async with open_connection(options, idle_s=1.0) as connection:
        return await measure(connection, folder)


async def _measure(part: str, lines: Sequence[Sequence[Line]], connection: Connection, folder: Path) -> Figures:
    typed, asked = lines
    trials = {
        name: Trial.build(connection, healing=healing, confidence=confidence)
        for (healing, confidence), name in _NAMES.items()
    }
    with run_llama_server(Path("models/default").absolute(), folder) as url:
        async with ClientSession(url) as session:
            trials["_llama_server"], plugin = _build_beside(session, True), _build_beside(session, False)
            await run_trials([*trials.values()], typed, asked, _ASKED_SEED)
            await run_trials([plugin], typed[:_NUM_INFILL], asked[:_NUM_INFILL], _ASKED_SEED)
            trials["_infill"] = plugin
    figures = {
        f"{figure}{name}_{part}": value
        for name, each in trials.items()
        for figure, value in each.list_figures().items()
    }
    return {f"num_lines_{part}": len(typed), **figures, **_compare(figures, part)}


def _build_beside(session: ClientSession, is_plain: bool) -> Trial:
    by_tab, by_word = (LlamaServer(session, slot, is_plain) for slot in (0, 1))
    return Trial(Typist(by_tab), Typist(by_word, takes_words=True), Cursors(by_tab))


def _compare(figures: dict[str, float | None], part: str) -> dict[str, float | None]:
    def divide(figure: str, other: str) -> float | None:
        ours, theirs = figures[f"{figure}_{part}"], figures[f"{figure}{other}_{part}"]
        return ours / max(theirs, 0.001) if ours is not None and theirs is not None else None

    return {f"saved_to{other}_{part}": divide("saved", other) for other in ("_llama_server", "_none", "_none_all")}


async def _draw_curve(typed: Sequence[Line], connection: Connection, _folder: Path) -> Figures:
    trials = [Trial.build(connection, healing="exact", confidence=each) for each in _CURVE]
    await run_trials(trials, typed, [], _ASKED_SEED)
    return {
        f"curve_{figure}_{confidence:g}": each.list_figures()[figure]
        for confidence, each in zip(_CURVE, trials, strict=True)
        for figure in ("saved", "saved_word", "wrong_chars_per_key")
    }


class LlamaServer:
    """llama.cpp's server, asked by a plugin that remembers its answers: a `GhostText`."""

    def __init__(self, session: ClientSession, slot: int, is_plain: bool) -> None:
        """`is_plain`: it only continues the text before the cursor. Otherwise it is asked as llama.vim asks it."""
        self._session, self._is_plain = session, is_plain
        self._slot = {"id_slot": slot, "stop": ["\n"]}
        self._known: dict[str, str] = {}  # the answers, by the text before the cursor

    def open(self, _before: str, _after: str) -> None:
        """See `GhostText`."""
        self._known.clear()

    async def show(self, before: str, after: str) -> str:
        """See `GhostText`."""
        for asked, text in self._known.items():
            if before.startswith(asked) and (asked + text).startswith(before) and len(before) < len(asked + text):
                return (asked + text)[len(before) :]
        self._known[before] = text = await self._ask(before, after)
        return text

    async def _ask(self, before: str, after: str) -> str:
        above, line_end, line = before.rpartition("\n")
        above = (above + line_end)[-_PREFIX_CHARS:]
        above = above[above.find("\n") + 1 :]
        path, body = "/infill", read_sent("llama_vim")["body"] | {"input_prefix": above, "prompt": line, "seed": 1}
        body |= {"input_suffix": after[:_SUFFIX_CHARS], "n_indent": len(line) - len(line.lstrip())}
        if self._is_plain:
            path, body = "/completion", {"prompt": above + line, "temperature": 0, "n_predict": 64}
        async with self._session.post(path, json=body | self._slot) as response:
            response.raise_for_status()
            content: str = (await response.json())["content"]
            return content.partition("\n")[0]


if __name__ == "__main__":
    main()
