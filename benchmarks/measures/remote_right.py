"""Whether the engine in front of a server completes as our own engine does with the same weights.

Where the tokens part, it is a tie if ours was more likely by no more than `GAP`: a server's sums depend on the rows
beside, and on the type of its keys and values. All other differences are wrong.
"""

import math
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.corpora.cuts import Cut
from benchmarks.measures.right_choices import RecordingModel, find_log_prob
from inference.config import EngineConfig
from inference.engine.assembly import build_engine
from inference.engine.sink import complete
from inference.model.language_model import Choice, SampleRequest, SampleResult
from inference.model.loader import load_model
from inference.model.numpy_sampler import find_row
from inference.protocol.completion import CompletionRequest, Extent
from inference.remote.discovery import find_server
from inference.remote.engine import RemoteEngine, load_remote_engine
from inference.remote.http_client import HttpClient
from trie_cache.vocabulary import Vocabulary

CONTEXT_CHARS, MAX_TOKENS = 800, 8
GAP = 0.02  # nats
_SUFFIX_CHARS = 400


class RecordingServer:
    """A `RemoteServer`. Its questions after the first of a choice are counted, and what it writes is noted."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self.num_answers = 0
        self.written: list[int] = []  # the last row that was continued, and what followed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._server, name)

    async def answer(self, *asked: Any) -> tuple[int, float]:
        self.num_answers += 1
        result: tuple[int, float] = await self._server.answer(*asked)
        return result

    async def generate(self, request: CompletionRequest, row: tuple[int, ...]) -> AsyncGenerator[int, None]:
        self.written = [*row]
        async with aclosing(self._server.generate(request, row)) as token_ids:
            async for token_id in token_ids:
                self.written.append(token_id)
                yield token_id


@contextmanager
def open_recording(url: str, folder: Path) -> Iterator[tuple[RemoteEngine, RecordingServer]]:
    """The engine in front of the server, with the tokenizer in the folder."""
    servers: list[RecordingServer] = []

    async def find(http: HttpClient) -> RecordingServer:
        servers.append(RecordingServer(await find_server(http)))
        return servers[-1]

    with closing(load_remote_engine(EngineConfig(folder, engine_url=url), find)) as engine:
        yield engine, servers[-1]


@dataclass(slots=True)
class Differences:
    """What became of the cuts where the texts are not equal."""

    num_tied: int = 0
    num_wrong: int = 0


def compare_remote(url: str, folder: Path, cuts: Sequence[Cut]) -> Differences:
    """Completes at each cut with both engines, at every second one with the text after the cursor."""
    config, differences = EngineConfig(folder, dtype="float32", drafts=False), Differences()
    loaded = load_model(config)
    model = RecordingModel(loaded.model)
    own = build_engine(config, replace(loaded, model=model))
    with closing(own), open_recording(url, folder) as (remote, server):
        for number, cut in enumerate(cuts):
            suffix = (cut.run_end + cut.suffix)[:_SUFFIX_CHARS] if number % 2 else ""
            request = CompletionRequest(cut.find_context(CONTEXT_CHARS), suffix, MAX_TOKENS, extent=Extent.UNLIMITED)
            model.choices.clear()
            expected, (text, stats) = complete(own, request)[0], complete(remote, request)
            if text != expected:
                written = server.written[stats.num_context_tokens :]
                is_tied = _find_gap(model.choices, written, loaded.tokenizer.vocabulary) <= GAP
                differences.num_tied += is_tied
                differences.num_wrong += not is_tied
    return differences


def _find_gap(choices: list[tuple[SampleRequest, SampleResult]], written: list[int], vocabulary: Vocabulary) -> float:
    """How much more likely our choice was than the server's, where the two part."""
    for asked, result in choices:
        ours = result.choices[0]
        path = [*_find_path(asked, ours), ours.token_id]
        if written[: len(path)] != path:
            theirs = _find_choices(asked, written, vocabulary)
            best = max((find_log_prob(asked, each) for each in theirs), default=-math.inf)
            return find_log_prob(asked, ours) - best
        written = written[len(path) :]
    return math.inf


def _find_choices(asked: SampleRequest, written: list[int], vocabulary: Vocabulary) -> Iterator[Choice]:
    """The choices that are the beginning of what was written."""
    for crossing in asked.crossings:
        path = _find_path(asked, Choice(crossing, 0))
        if asked.rows[find_row(crossing.node)] is not None and written[: len(path)] == path and written[len(path) :]:
            token_id = written[len(path)]
            if vocabulary.token_bytes[token_id].startswith(crossing.remaining_bytes):
                yield Choice(crossing, token_id)


def _find_path(asked: SampleRequest, choice: Choice) -> list[int]:
    return [asked.tree.branch_ids[branch] for branch in asked.tree.find_path(choice.crossing.node)]
