"""Exact healing in front of llama.cpp's server, with the weights of the default model in float32.

    python -m benchmarks.remote [--output PATH] [--only PART ...]

- …_cuts, …_equal, …_tied, …wrong_texts: see `benchmarks.measures.remote_right`, for vLLM too where `make test-vllm` has
  installed it.
- own_cpu_ms: what this process computes for a choice. requests_per_choice: what the server is asked for it.
- The server also continues the tokens of the same text by itself. It has read the text before, for both.
  `added_ms_p50`: the median difference until all of `MAX_TOKENS` tokens have come. `right_healed`, `right_plain`:
  the shares of cuts where the text begins with the end of the word, operator, blank or string.
- front_clients: the editors whose recorded requests get the right word in front of the server;
  `front_clients_plainly`: from the server itself.
"""

import asyncio
import json
import statistics
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.baselines.servers import VLLM_PYTHON, run_llama_server, run_vllm
from benchmarks.corpora.cuts import Cut, draw_cuts
from benchmarks.measures.remote_right import CONTEXT_CHARS, MAX_TOKENS, compare_remote, open_recording
from benchmarks.measures.report import Figures, Target, run_parts
from inference.engine.sink import complete
from inference.healing.heal_point import encode_text
from inference.healing.loaded_tokenizer import load_tokenizer
from inference.protocol.completion import CompletionRequest, Extent, Priority
from models.training.corpus import iter_held_out
from tests.support.front_clients import EDITORS, ask_as_editors

_FOLDER = Path("models/default").absolute()
_NUM_CUTS, _NUM_VLLM_CUTS = 540, 108

_TARGETS = (
    Target("llama_server_cuts", "cuts that were compared with our own engine, llama-server", at_least=500),
    Target("wrong_texts", "other texts than our own engine's that are no ties", at_most=0),
    Target("requests_per_choice", "requests for a choice", at_most=2),
    Target("own_cpu_ms", "our own computing for a choice, ms", at_most=6),
    Target("num_front_clients", "editors that get the right word", at_least=len(EDITORS)),
    Target("vllm_wrong_texts", "the same with vLLM", at_most=0),
    Target("vllm_cuts", "cuts that were compared with our own engine, vLLM", at_least=100),
)


def main() -> None:
    with TemporaryDirectory() as folder, run_llama_server(_FOLDER, Path(folder)) as url:
        cuts = draw_cuts(iter_held_out(), _NUM_CUTS // 2, _NUM_CUTS // 2, seed=7)
        parts = {
            "right": partial(_compare, "llama_server", url, cuts),
            "cost": partial(_measure, url, cuts),
            "fronts": partial(_ask_as_editors, url, Path(folder)),
        }
        if VLLM_PYTHON.exists():
            parts["vllm"] = partial(_compare_vllm, cuts[:: _NUM_CUTS // _NUM_VLLM_CUTS], Path(folder))
        run_parts("remote", parts, _TARGETS)


def _compare_vllm(cuts: Sequence[Cut], folder: Path) -> Figures:
    with run_vllm(_FOLDER, folder) as url:
        return _compare("vllm", url, cuts)


def _compare(name: str, url: str, cuts: Sequence[Cut]) -> Figures:
    found = compare_remote(url, _FOLDER, cuts)
    return {
        f"{name}_cuts": len(cuts),
        f"{name}_equal": len(cuts) - found.num_tied - found.num_wrong,
        f"{name}_tied": found.num_tied,
        "wrong_texts" if name == "llama_server" else f"{name}_wrong_texts": found.num_wrong,
    }


def _measure(url: str, cuts: Sequence[Cut]) -> Figures:
    tokenizer = load_tokenizer(_FOLDER)
    healed_ms: list[float] = []
    plain_ms: list[float] = []
    cpu_ms: list[float] = []
    num_right_healed = num_right_plain = 0
    with open_recording(url, _FOLDER) as (remote, server):
        server.num_answers = 0
        for number, cut in enumerate(cuts):
            text = cut.find_context(CONTEXT_CHARS)
            row = [*tokenizer.start_ids, *encode_text(tokenizer.encoder, text)]
            request = CompletionRequest(text, max_tokens=MAX_TOKENS, extent=Extent.UNLIMITED)
            complete(remote, replace(request, priority=Priority.PREFETCH))
            cpu_before = time.process_time()
            complete(remote, replace(request, max_tokens=1))
            cpu_ms.append(1e3 * (time.process_time() - cpu_before))
            for is_healed in (True, False) if number % 2 else (False, True):
                started_at = time.perf_counter()
                completion = complete(remote, request)[0] if is_healed else _complete_plainly(url, row)
                (healed_ms if is_healed else plain_ms).append(1e3 * (time.perf_counter() - started_at))
                num_right_healed += is_healed and cut.is_solved_by(completion)
                num_right_plain += not is_healed and cut.is_solved_by(completion)
        num_choices = 2 * len(cuts)
    return {
        "requests_per_choice": 1 + server.num_answers / num_choices,
        "own_cpu_ms": statistics.mean(cpu_ms),
        "added_ms_p50": statistics.median(map(float.__sub__, healed_ms, plain_ms)),
        "healed_ms_p50": statistics.median(healed_ms),
        "plain_ms_p50": statistics.median(plain_ms),
        "right_healed": num_right_healed / len(cuts),
        "right_plain": num_right_plain / len(cuts),
    }


def _ask_as_editors(url: str, folder: Path) -> Figures:
    found = asyncio.run(ask_as_editors(url, folder))
    names = {name: ", ".join(editors) for name, editors in found.items()}
    return {"num_front_clients": len(found["front_clients"]), **names}


def _complete_plainly(url: str, row: Sequence[int]) -> str:
    body = {"prompt": row, "n_predict": MAX_TOKENS, "temperature": 0.0, "stream": True}
    request = urllib.request.Request(
        f"{url}/completion", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request) as response:
        events = [json.loads(line.removeprefix(b"data: ")) for line in response if line.startswith(b"data: {")]
    return "".join([event["content"] for event in events])


if __name__ == "__main__":
    main()
