"""What ghost text is worth to somebody who types: keys saved, and wrong characters on the screen.

    python -m benchmarks.typing [--output PATH] [--only PART ...] [--short]

`benchmarks.measures.typing_trial` types held-out lines, with the text below them, into the language server, which asks
the bundled model, and asks at cursors anywhere in other lines. The part `curve` types at other confidences. `…_none` is
without healing at the default confidence, `…_none_all` at confidence 0.

`…_llama_server`: llama.cpp's server with the same weights continues the text before the cursor, greedily. Only the
first line counts, and a key that agrees with an answer needs no request.
"""

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from aiohttp import ClientSession, TCPConnector

from benchmarks.baselines.servers import run_llama_server
from benchmarks.measures.report import Figures, Target, run_parts
from benchmarks.measures.typing_trial import Cursors, Trial, Typist, draw_lines, run_trials
from lsp_server.settings import Settings
from midtoken.connection import Connection, open_connection
from midtoken.server_arguments import add_connection_arguments
from models.training.corpus import iter_held_out

_NUM_LINES, _NUM_CURVE_LINES, _NUM_SHORT = 300, 100, 1
_SEED, _ASKED_SEED = 101, 102
_DEFAULT = Settings().confidence
_CURVE = (0.0, 0.2, 0.3, 0.45, 0.5, 0.55, 0.6, 0.7)
_PREFIX_CHARS = 2000  # as many as the model was trained with
_NAMES = {("exact", _DEFAULT): "", ("exact", 0.0): "_all", ("none", _DEFAULT): "_none", ("none", 0.0): "_none_all"}


_TARGETS = (
    Target("saved_below", "keys saved by Tab", at_least=0.44),
    Target("saved_word_below", "keys saved with accept-word", at_least=0.48),
    Target("wrong_chars_per_key_below", "wrong characters on the screen at a key", at_most=2),
    Target("shown_right_share_below", "shown texts that are wholly right", at_least=0.7),
    Target("flicker_below", "ghost texts that changed at an agreeing key", at_most=0),
    Target("saved_to_none_below", "keys saved, to no healing's at the same confidence", at_least=2),
)


def main() -> None:
    run_parts("typing", {"below": partial(_run, _measure), "curve": partial(_run, _draw_curve)}, _TARGETS)


def _run(measure: Callable[[bool, Connection, Path], Awaitable[Figures]], is_short: bool) -> Figures:
    async def connect(folder: Path) -> Figures:
        async with open_connection(parse_options(f"--state-dir={folder}"), idle_s=1.0) as connection:
            return await measure(is_short, connection, folder)

    with TemporaryDirectory() as folder:
        return asyncio.run(connect(Path(folder)))


def parse_options(*arguments: str) -> argparse.Namespace:
    """The options of a connection to a server."""
    parser = argparse.ArgumentParser()
    add_connection_arguments(parser)
    return parser.parse_args(arguments)


async def _measure(is_short: bool, connection: Connection, folder: Path) -> Figures:
    texts = [file.text for file in iter_held_out()]
    typed, asked = (draw_lines(texts, _NUM_SHORT if is_short else _NUM_LINES, seed) for seed in (_SEED, _ASKED_SEED))
    trials = {
        name: Trial.build(connection, healing=healing, confidence=confidence)
        for (healing, confidence), name in _NAMES.items()
    }
    with run_llama_server(Path("models/default").absolute(), folder) as url:
        # The server closes a connection that it has not used for a while, which may be just now.
        async with ClientSession(url, connector=TCPConnector(force_close=True)) as session:
            by_tab, by_word = (LlamaServer(session, slot) for slot in (0, 1))
            trials["_llama_server"] = Trial(Typist(by_tab), Typist(by_word, takes_words=True), Cursors(by_tab))
            await run_trials([*trials.values()], typed, asked, _ASKED_SEED)
    figures = {
        f"{figure}{name}_below": value for name, each in trials.items() for figure, value in each.list_figures().items()
    }
    return {**figures, "saved_to_none_below": trials[""].by_tab.saved / max(trials["_none"].by_tab.saved, 0.001)}


async def _draw_curve(is_short: bool, connection: Connection, _folder: Path) -> Figures:
    texts = [file.text for file in iter_held_out()]
    typed = draw_lines(texts, _NUM_LINES, _SEED)[: _NUM_SHORT if is_short else _NUM_CURVE_LINES]
    trials = [Trial.build(connection, healing="exact", confidence=each) for each in _CURVE]
    await run_trials(trials, typed, [], _ASKED_SEED)
    return {
        f"curve_{figure}_{confidence:g}": each.list_figures()[figure]
        for confidence, each in zip(_CURVE, trials, strict=True)
        for figure in ("saved", "saved_word", "wrong_chars_per_key")
    }


class LlamaServer:
    """llama.cpp's server, which continues the text before the cursor, and remembered answers: a `GhostText`."""

    def __init__(self, session: ClientSession, slot: int) -> None:
        self._session, self._slot = session, slot
        self._known: dict[str, str] = {}  # the answers, by the text before the cursor

    def open(self, _before: str, _after: str) -> None:
        """See `GhostText`."""
        self._known.clear()

    async def show(self, before: str, _after: str) -> str:
        """See `GhostText`."""
        for asked, text in self._known.items():
            if before.startswith(asked) and (asked + text).startswith(before) and len(before) < len(asked + text):
                return (asked + text)[len(before) :]
        self._known[before] = text = await self._ask(before)
        return text

    async def _ask(self, before: str) -> str:
        above, line_end, line = before.rpartition("\n")
        above = (above + line_end)[-_PREFIX_CHARS:]
        prompt = above[above.find("\n") + 1 :] + line
        body = {"prompt": prompt, "temperature": 0, "n_predict": 64, "id_slot": self._slot, "stop": ["\n"]}
        async with self._session.post("/completion", json=body) as response:
            response.raise_for_status()
            content: str = (await response.json())["content"]
            return content.partition("\n")[0]


if __name__ == "__main__":
    main()
