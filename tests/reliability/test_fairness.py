"""One user sends a hundred times as much as each other one, of everything there is; the others hardly notice.

The greedy user asks for completions and candidates, prefetches, closes streams in their middle, and asks the
character-level model. The others type; calm times and greedy ones alternate. Each has a key, as in a team: without
keys, all are one user.
"""

import asyncio
import multiprocessing
import os
import random
from contextlib import aclosing, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.measures.load_editors import Outcome, run_editors
from benchmarks.measures.report import find_percentile
from inference.errors import MidtokenError
from inference.protocol.characters import CharacterRequest
from inference.protocol.completion import CompletionRequest, Priority
from inference.serving.client import Client
from tests.support.access import write_keys
from tests.support.chaos_editor import build_texts
from tests.support.load_scripts import GAP_S, build_scripts, list_ms
from tests.support.reliability import Reliability
from tests.support.servers import EMBEDDED, TRITON, make_slow, needs_triton, run_server

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(0)]

_GREED = 100  # requests for each one of another user
_MAX_AT_ONCE = 400  # of the greedy user
_KEYS = [20 * letter for letter in "abc"]  # the last one is the greedy user's


async def _ask(client: Client, rng: random.Random) -> None:
    request = CompletionRequest(rng.choice(build_texts()), max_tokens=64)
    kind = rng.choice(("complete", "candidates", "prefetch", "drop", "characters"))
    with suppress(MidtokenError, TimeoutError):
        if kind == "characters":
            await client.ask(CharacterRequest(request.prefix.encode()))
            return
        if kind == "candidates":
            request = replace(request, num_candidates=4, temperature=1.0)
        elif kind == "prefetch":
            request = replace(request, priority=Priority.PREFETCH)
        async with asyncio.timeout(0.05 if kind == "drop" else 60), aclosing(client.stream(request)) as chunks:
            async for _ in chunks:
                pass


async def _be_greedy(url: str, rate_per_s: float) -> None:
    rng, tasks = random.Random(0), set[asyncio.Task[None]]()
    async with Client(url, key=_KEYS[-1]) as client:
        while True:
            if len(tasks) < _MAX_AT_ONCE:
                tasks.add(task := asyncio.ensure_future(_ask(client, rng)))
                task.add_done_callback(tasks.discard)
            await asyncio.sleep(rng.expovariate(rate_per_s))


def _run_greedy(url: str, rate_per_s: float) -> None:
    os.nice(10)  # it is to take the server's time, and not the other clients'
    asyncio.run(_be_greedy(url, rate_per_s))


@pytest.mark.parametrize("runtime", [pytest.param(TRITON, marks=[needs_triton, pytest.mark.full]), EMBEDDED])
async def test_others_are_answered_beside_a_greedy_user(runtime: str, tmp_path: Path, reliability: Reliability) -> None:
    num_others, duration_s = reliability.choose(1, 2), reliability.choose(3.0, 30.0)
    scripts, file = build_scripts(num_others), write_keys(tmp_path, "".join(f"{key[0]} {key}\n" for key in _KEYS))
    context, calm, greedy = multiprocessing.get_context("spawn"), [], []
    arguments = ("--listen=0", f"--keys={file}")
    with run_server(make_slow(tmp_path), tmp_path / "state", *arguments, runtime=runtime) as server:
        async with Client(server.public_url, key=_KEYS[-1]) as client:
            await client.ask(CharacterRequest(b"a"))  # loads the model, once in the life of a server
        async with run_editors(server.public_url, scripts, _KEYS[:num_others]) as editors:
            for _ in range(reliability.choose(1, 3)):
                calm.append(await editors.play("calm", duration_s, len(scripts) / GAP_S, is_patient=True))
                aggressor = context.Process(target=_run_greedy, args=(server.public_url, _GREED / GAP_S), daemon=True)
                aggressor.start()
                greedy.append(await editors.play("greedy", duration_s, len(scripts) / GAP_S, is_patient=True))
                aggressor.kill()
                aggressor.join()
    figures = {
        "fairness_calm_ms_p99": find_percentile(list_ms(calm), 99),
        "fairness_greedy_ms_p99": find_percentile(list_ms(greedy), 99),
        "fairness_p99_ratio": (find_percentile(list_ms(greedy), 99) or 0) / (find_percentile(list_ms(calm), 99) or 1),
        "fairness_refused": sum(phase.count(Outcome.REFUSED) for phase in greedy),
    }
    reliability.record(
        f"fairness_{server.runtime_name}", {f"{name}_{server.runtime_name}": figures[name] for name in figures}
    )
    assert all(phase.count(Outcome.COMPLETED) for phase in greedy)
