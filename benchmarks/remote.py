"""Exact healing in front of llama.cpp's server, with the weights of the bundled model in float32.

    python -m benchmarks.remote [--output PATH] [--only PART ...] [--short]

- …_cuts, …_equal, …_tied, …wrong_texts: whether the engine in front of the server completes as our own engine does with
  the same weights; for vLLM too where `make test-vllm` has installed it. Where the tokens part, it is a tie if ours was
  more likely by no more than 0.02 nats: a server's sums depend on the rows beside, and on the type of its keys and
  values.
- own_cpu_ms: what this process computes for a choice. requests_per_choice: what the server is asked for it.
- The server also continues the tokens of the same text by itself. It has read the text before, for both.
  `added_ms_p50`: the median difference until all of 8 tokens have come. `right_healed`, `right_plain`:
  the shares of cuts where the text begins with the end of the word, operator, blank or string.
"""

import json
import math
import statistics
import time
import urllib.request
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.baselines.servers import VLLM_PYTHON, run_llama_server, run_vllm
from benchmarks.corpora.cuts import Cut, draw_cuts
from benchmarks.measures.report import Figures, Part, Target, UnavailableError, run_parts, track
from benchmarks.measures.right_choices import Differences, Recorded, RecordingModel, find_log_prob
from inference.config import EngineConfig
from inference.engine.engine import Engine, complete
from inference.engine.local_executor import build_engine
from inference.healing.heal_point import encode_text
from inference.healing.loaded_tokenizer import load_tokenizer
from inference.model.loader import load_model
from inference.model.sampler import SampledToken, SampleRequest, find_row
from inference.protocol.completion import CompletionRequest, Extent, FinishReason, Priority
from inference.remote.choice import GeneratedToken
from inference.remote.executor import load_remote_engine
from inference.remote.health import detect_server
from inference.remote.http_client import HttpClient
from models.training.corpus import iter_held_out
from trie_cache.trie import Vocabulary

_FOLDER = Path("models/default").absolute()
_NUM_CUTS, _NUM_VLLM_CUTS, _NUM_SHORT_CUTS = 540, 108, 10
_CONTEXT_CHARS, _SUFFIX_CHARS, _MAX_TOKENS = 800, 400, 8
_GAP = 0.02  # nats

_TARGETS = (
    Target("llama_server_cuts", "cuts that were compared with our own engine, llama-server", at_least=500),
    Target("wrong_texts", "other texts than our own engine's that are no ties", at_most=0),
    Target("requests_per_choice", "requests for a choice", at_most=2),
    Target("own_cpu_ms", "our own computing for a choice, ms", at_most=6),
    Target("vllm_wrong_texts", "the same with vLLM", at_most=0),
    Target("vllm_cuts", "cuts that were compared with our own engine, vLLM", at_least=100),
)


def main() -> None:
    parts: dict[str, Part] = {
        "right": _compare_llama_server,
        "cost": _measure_cost,
        "vllm": _compare_vllm,
    }
    run_parts("remote", parts, _TARGETS)


def _draw_cuts(is_short: bool) -> Sequence[Cut]:
    num_cuts = _NUM_SHORT_CUTS if is_short else _NUM_CUTS
    return draw_cuts(iter_held_out(), num_cuts // 2, num_cuts // 2, seed=7)


@contextmanager
def _run_llama_server() -> Iterator[str]:
    with TemporaryDirectory() as folder, run_llama_server(_FOLDER, Path(folder)) as url:
        yield url


def _compare_llama_server(is_short: bool) -> Figures:
    with _run_llama_server() as url:
        return _compare("llama_server", url, _draw_cuts(is_short))


def _compare_vllm(is_short: bool) -> Figures:
    if is_short or not VLLM_PYTHON.exists():
        raise UnavailableError("it takes minutes to start" if is_short else "`make test-vllm` installs vLLM")
    with TemporaryDirectory() as folder, run_vllm(_FOLDER, Path(folder)) as url:
        return _compare("vllm", url, _draw_cuts(is_short)[:: _NUM_CUTS // _NUM_VLLM_CUTS])


def _compare(name: str, url: str, cuts: Sequence[Cut]) -> Figures:
    found = compare_remote(url, _FOLDER, cuts)
    return {
        f"{name}_cuts": len(cuts),
        f"{name}_equal": len(cuts) - found.num_tied - len(found.wrong),
        f"{name}_tied": found.num_tied,
        "wrong_texts" if name == "llama_server" else f"{name}_wrong_texts": len(found.wrong),
    }


def _measure_cost(is_short: bool) -> Figures:
    tokenizer, cuts = load_tokenizer(_FOLDER), _draw_cuts(is_short)
    times_ms: dict[bool, list[float]] = {True: [], False: []}  # by whether it is healed
    rights: dict[bool, list[bool]] = {True: [], False: []}
    cpu_ms: list[float] = []
    with _run_llama_server() as url, open_recording(url, _FOLDER) as (remote, server):
        server.num_answers = 0
        for number, cut in enumerate(track(cuts, "asking")):
            text = cut.find_context(_CONTEXT_CHARS)
            row = [*tokenizer.start_ids, *encode_text(tokenizer.encoder, text)]
            request = CompletionRequest(text, max_tokens=_MAX_TOKENS, extent=Extent.UNLIMITED)
            complete(remote, replace(request, priority=Priority.PREFETCH))
            cpu_before = time.process_time()
            complete(remote, replace(request, max_tokens=1))
            cpu_ms.append(1e3 * (time.process_time() - cpu_before))
            for is_healed in (True, False) if number % 2 else (False, True):
                started_at = time.perf_counter()
                completion = complete(remote, request)[0] if is_healed else _complete_plainly(url, row)
                times_ms[is_healed].append(1e3 * (time.perf_counter() - started_at))
                rights[is_healed].append(cut.is_solved_by(completion))
    return {
        "requests_per_choice": 1 + server.num_answers / (2 * len(cuts)),
        "own_cpu_ms": statistics.mean(cpu_ms),
        "added_ms_p50": statistics.median(map(float.__sub__, times_ms[True], times_ms[False])),
        "right_healed": statistics.mean(rights[True]),
        "right_plain": statistics.mean(rights[False]),
    }


def _complete_plainly(url: str, row: Sequence[int]) -> str:
    body = {"prompt": row, "n_predict": _MAX_TOKENS, "temperature": 0.0, "stream": True}
    request = urllib.request.Request(
        f"{url}/completion", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request) as response:
        events = [json.loads(line.removeprefix(b"data: ")) for line in response if line.startswith(b"data: {")]
    return "".join([event["content"] for event in events])


class RecordingServer:
    """A `RemoteServer`. Its questions after the first of a choice are counted, and what it writes is noted."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self.num_answers = 0
        self.written: list[int] = []  # the last row that was continued, and what followed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._server, name)

    async def find_best_token(self, *asked: Any) -> tuple[int, float]:
        self.num_answers += 1
        result: tuple[int, float] = await self._server.find_best_token(*asked)
        return result

    async def generate(
        self, request: CompletionRequest, row: tuple[int, ...], *limits: Any
    ) -> AsyncGenerator[GeneratedToken | FinishReason, None]:
        self.written = [*row]
        async with aclosing(self._server.generate(request, row, *limits)) as steps:
            async for step in steps:
                self.written += [step.token_id] if isinstance(step, GeneratedToken) else []
                yield step


@contextmanager
def open_recording(url: str, folder: Path) -> Iterator[tuple[Engine, RecordingServer]]:
    """The engine in front of the server, with the tokenizer in the folder."""
    servers: list[RecordingServer] = []

    async def find(http: HttpClient) -> Any:  # which passes on all else
        servers.append(RecordingServer(await detect_server(http)))
        return servers[-1]

    with closing(load_remote_engine(EngineConfig(folder, engine_url=url), find)) as engine:
        yield engine, servers[-1]


def compare_remote(url: str, folder: Path, cuts: Sequence[Cut]) -> Differences:
    """Completes at each cut with both engines, at every second one with the text after the cursor."""
    config, differences = EngineConfig(folder, dtype="float32"), Differences(_GAP)
    loaded = load_model(config)
    model = RecordingModel(loaded.model)
    own = build_engine(config, replace(loaded, model=model))
    with closing(own), open_recording(url, folder) as (remote, server):
        for number, cut in enumerate(track(cuts, "comparing")):
            suffix = (cut.run_end + cut.suffix)[:_SUFFIX_CHARS] if number % 2 else ""
            request = CompletionRequest(cut.find_context(_CONTEXT_CHARS), suffix, _MAX_TOKENS, extent=Extent.UNLIMITED)
            model.choices.clear()
            expected, (text, stats) = complete(own, request)[0], complete(remote, request)
            if text != expected:
                written = server.written[stats.num_context_tokens :]
                differences.add(request, _find_gap(model.choices, written, loaded.tokenizer.vocabulary))
    return differences


def _find_gap(choices: list[Recorded], written: list[int], vocabulary: Vocabulary) -> float:
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


def _find_choices(asked: SampleRequest, written: list[int], vocabulary: Vocabulary) -> Iterator[SampledToken]:
    """The choices that are the beginning of what was written."""
    for crossing in asked.crossings:
        path = _find_path(asked, SampledToken(crossing, 0))
        if asked.rows[find_row(crossing.node)] is not None and written[: len(path)] == path and written[len(path) :]:
            token_id = written[len(path)]
            if vocabulary.token_bytes[token_id].startswith(crossing.remaining_bytes):
                yield SampledToken(crossing, token_id)


def _find_path(asked: SampleRequest, choice: SampledToken) -> list[int]:
    return [asked.tree.branch_ids[branch] for branch in asked.tree.find_path(choice.crossing.node)]


if __name__ == "__main__":
    main()
