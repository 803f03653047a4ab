"""A hundred users of one server: nobody gets, is told of, or can find out another's text.

All have documents with the same names, the same beginnings and the same ends. Between them stands a word of the user's
own. The model writes the last such word that its sequence has, so a sequence of another user would show at once.
"""

import asyncio
import contextlib
import io
import re
import statistics
import sys
import urllib.request
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pytest

from inference.errors import MidtokenError
from inference.protocol.completion import Chunks, CompletionRequest, Extent
from inference.serving.client import Client
from tests.support.dictated import DictatedService, run_dictated
from tests.support.reliability import Reliability, describe
from tests.support.servers import EMBEDDED, TRITON, find_real, needs_triton, run_server

_NUM_USERS_SHORT, _NUM_USERS_FULL = 8, 100
_NUM_ASKED_SHORT, _NUM_ASKED_FULL = 20, 1000  # of each user
_NUM_REAL_SHORT, _NUM_REAL_FULL = 40, 2500  # of all users, with each runtime
_NUM_TIMED = 300
_WORD = re.compile(r"own\d+x")
_COSTS = ("num_context_tokens", "num_read_tokens", "num_tree_nodes")  # others depend on how many run together
_HEAD = "".join(f"value_{number} = {number}\n" for number in range(8))


def _own(user: int) -> str:
    return f"own{user}x"


def _draw_requests(user: int, num: int) -> list[CompletionRequest]:
    """The same of each user, but for one word: a document is typed on, and another one begun."""
    random, requests, text = Random(num), list[CompletionRequest](), ""
    while len(requests) < num:
        if not text or random.random() < 0.1:
            text = random.choice(("", "\n", "class Node:\n")) + _HEAD[: random.choice((0, 30, len(_HEAD)))]
            text += f"{_own(user)} = 1\nuse "
        document = f"document {random.randint(0, 3)}"
        asked = CompletionRequest(
            text,
            max_tokens=random.choice((*[12] * 9, 1020)),  # which are more than the model sees beside the prompt
            chunks=random.choice(tuple(Chunks)),
            extent=Extent.SINGLE_LINE,
            tenant=f"user {user}",
            document=random.choice(("", document)),
        )
        requests.append(asked)
        text += random.choice(("\nx = 1\nuse ", "", f"\n{_own(user)}.a = 2\nuse "))
    return requests


def find_rest(text: bytes) -> bytes:
    """What the model writes: the last word of a user in its sequence."""
    before, _, done = text.rpartition(b"use ")
    words = _WORD.findall(before.decode())
    return f"{words[-1] if words else 'nothing'} of {len(words)}\n".encode()[len(done) :]


@dataclass(frozen=True, slots=True)
class _Told:
    """What a user is told by one answer."""

    text: str
    costs: tuple[int, ...]  # those that a request's place in the prefix cache changes


async def _ask(ask: Callable[[CompletionRequest], Any], request: CompletionRequest) -> _Told:
    text, costs = "", tuple[int, ...]()
    try:
        async for chunk in ask(request):
            text += chunk.text
            if chunk.stats is not None:
                costs = tuple([getattr(chunk.stats, name) for name in _COSTS])
                text += str(chunk.finish_reason)
    except MidtokenError as error:
        text += str(error)
    return _Told(text, costs)


def _find_foreign(user: int, told: str) -> set[str]:
    return {*_WORD.findall(told)} - {_own(user)}


_Spoil = Callable[[CompletionRequest], CompletionRequest]
# Nothing is forgotten for lack of room.
_ROOM: dict[str, Any] = {"memory_mib": 4096, "max_waiting": 1000, "cache_tokens": 2_000_000}


def compare_users(num_users: int, num: int, spoil: _Spoil = lambda request: request) -> list[str]:
    """All users ask at once, then one of them alone, of a new server. Returns what was wrong."""
    written = io.StringIO()

    async def ask_all(users: range) -> list[list[_Told]]:
        with run_dictated(find_rest, spoil, **_ROOM) as service:
            return await asyncio.gather(*[_ask_in_turn(service, user, num) for user in users])

    with contextlib.redirect_stderr(written):
        together, alone = (asyncio.run(ask_all(range(each))) for each in (num_users, 1))
    problems = [
        f"user {user} is told of {foreign}: {told}"
        for user, answers in enumerate(together)
        for told in answers
        if (foreign := _find_foreign(user, told.text))
    ]
    problems += [
        f"among others, {_COSTS} are {one.costs}, alone {other.costs}"
        for one, other in zip(together[0], alone[0], strict=True)
        if one.costs != other.costs
    ]
    return problems + [f"the log has {word}" for word in _WORD.findall(written.getvalue())]


async def _ask_in_turn(service: DictatedService, user: int, num: int) -> list[_Told]:
    return [await _ask(service.ask, request) for request in _draw_requests(user, num)]


def test_no_user_is_told_of_another(reliability: Reliability) -> None:
    num = reliability.choose(_NUM_ASKED_SHORT, _NUM_ASKED_FULL)
    problems = compare_users(reliability.choose(_NUM_USERS_SHORT, _NUM_USERS_FULL), num)
    reliability.record("isolation", {"isolation_requests": num * _NUM_USERS_FULL, "isolation_foreign": len(problems)})
    assert not problems, describe(problems)


def _share_all(request: CompletionRequest) -> CompletionRequest:
    return replace(request, tenant="")


def _mix_up(request: CompletionRequest) -> CompletionRequest:
    return replace(request, prefix=request.prefix.replace("own1x", "own2x"))


def _log(request: CompletionRequest) -> CompletionRequest:
    print(request.prefix, file=sys.stderr)
    return request


@pytest.mark.parametrize(("spoil", "told"), [(_share_all, "alone"), (_mix_up, "is told of"), (_log, "the log has")])
def test_a_leak_is_noticed(spoil: _Spoil, told: str) -> None:
    assert any(told in describe(compare_users(3, num, spoil)) for num in range(6, 12))  # they must meet to share


@pytest.mark.e2e
@pytest.mark.parametrize("runtime", [pytest.param(TRITON, marks=needs_triton), EMBEDDED])
async def test_real_servers_keep_users_apart(runtime: str, reliability: Reliability, tmp_path: Any) -> None:
    """Also their logs and metrics have no text, and their answers come as late as those of a text nobody has sent."""
    num = reliability.choose(_NUM_REAL_SHORT, _NUM_REAL_FULL)
    num_users = reliability.choose(4, 20)
    with run_server(find_real(), tmp_path / "state", runtime=runtime) as server:
        async with Client(server.url) as client:
            parts = [_ask_client(client, user, num // num_users) for user in range(num_users)]
            problems = [each for part in await asyncio.gather(*parts) for each in part]
            p_value = await _compare_times(client, reliability.choose(20, _NUM_TIMED))
        told = server.log + await asyncio.to_thread(_read_metrics, f"{server.http_url}/metrics")
    problems += [f"the log or a metric has {word}" for word in {*_WORD.findall(told)}]
    name = "triton" if runtime == TRITON else "embedded"
    figures = {"requests": num, "foreign": len(problems), "time_p_value": p_value}
    reliability.record(f"isolation_{name}", {f"isolation_{name}_{each}": value for each, value in figures.items()})
    assert not problems, describe(problems)
    assert not reliability.is_full or p_value > 1e-4


async def _ask_client(client: Client, user: int, num: int) -> list[str]:
    told = [await _ask(client.stream, request) for request in _draw_requests(user, num)]
    return [f"user {user} is told of {each}" for each in told if _find_foreign(user, each.text)]


def _read_metrics(url: str) -> str:
    with urllib.request.urlopen(url) as response:
        text: str = response.read().decode()
    return text


async def _compare_times(client: Client, num: int) -> float:
    """The probability that texts which another user has sent are answered as late as others, by a rank test."""
    known, unknown = list[float](), list[float]()
    for number in range(num):
        texts = [f"# {kind} {number}\n{_HEAD}" for kind in "ab"]
        await _measure(client, texts[0], "victim")
        for text, times in Random(number).sample([(texts[0], known), (texts[1], unknown)], 2):
            times.append(await _measure(client, text, "attacker"))
    return find_p_value(known, unknown)


async def _measure(client: Client, text: str, tenant: str) -> float:
    request = CompletionRequest(text, max_tokens=1, tenant=tenant)
    [stats] = [chunk.stats async for chunk in client.stream(request) if chunk.stats is not None]
    return stats.first_chunk_ms


def find_p_value(first: list[float], second: list[float]) -> float:
    """Of the test of Mann and Whitney, two-sided, by the normal distribution."""
    ranked = sorted(first + second)
    rank_sum = sum((bisect_left(ranked, value) + bisect_right(ranked, value) + 1) / 2 for value in first)
    num, other = len(first), len(second)
    deviation = (rank_sum - num * (num + other + 1) / 2) / (num * other * (num + other + 1) / 12) ** 0.5
    return 2 * statistics.NormalDist().cdf(-abs(deviation))


def test_a_hit_of_ones_own_is_told_by_its_time() -> None:
    times = [[5.0 + number % 7 for number in range(40)], [4.0 + number % 7 for number in range(40)]]
    assert find_p_value(times[0], times[0]) > 0.5
    assert find_p_value(*times) < 0.05
