"""A hundred users of one server: nobody gets, is told of, or can find out another's text.

All have documents with the same names, the same beginnings and the same ends. Between them stands a word of the user's
own. The model writes the last such word that its sequence has, so a sequence of another user would show at once.
"""

import asyncio
import contextlib
import io
import re
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from inference.client.client import Client
from inference.errors import MidtokenError
from inference.protocol.completion import Chunks, CompletionRequest, Extent
from tests.support.dictated import DictatedService, run_dictated
from tests.support.reliability import Reliability
from tests.support.servers import EMBEDDED, TRITON, find_real, needs_triton, run_server

_NUM_USERS_SHORT, _NUM_USERS_FULL = 8, 100
_NUM_ASKED_SHORT, _NUM_ASKED_FULL = 20, 1000  # of each user
_NUM_REAL_SHORT, _NUM_REAL_FULL = 40, 2500  # of all users, with each runtime
_WORD = re.compile(r"own\d+x")
_COSTS = ("num_context_tokens", "num_cached_tokens", "num_tree_nodes")  # others depend on how many run together
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


_Told = tuple[str, tuple[int, ...]]  # by one answer: its text, and those costs that a place in the prefix cache changes


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
    return text, costs


def _find_foreign(user: int, told: str) -> set[str]:
    return {*_WORD.findall(told)} - {_own(user)}


# Nothing is forgotten for lack of room.
_ROOM: dict[str, Any] = {"memory_mib": 4096, "max_sequences": 100, "cache_tokens": 2_000_000}


def compare_users(num_users: int, num: int) -> list[str]:
    """All users ask at once, then one of them alone, of a new server. Returns what was wrong."""
    written = io.StringIO()

    async def ask_all(users: range) -> list[list[_Told]]:
        with run_dictated(find_rest, **_ROOM) as service:
            return await asyncio.gather(*[_ask_in_turn(service, user, num) for user in users])

    with contextlib.redirect_stderr(written):
        together, alone = (asyncio.run(ask_all(range(each))) for each in (num_users, 1))
    problems = [
        f"user {user} is told of {foreign}: {told}"
        for user, answers in enumerate(together)
        for told, _ in answers
        if (foreign := _find_foreign(user, told))
    ]
    problems += [
        f"among others, {_COSTS} are {costs}, alone {alone_costs}"
        for (_, costs), (_, alone_costs) in zip(together[0], alone[0], strict=True)
        if costs != alone_costs
    ]
    return problems + [f"the log has {word}" for word in _WORD.findall(written.getvalue())]


async def _ask_in_turn(service: DictatedService, user: int, num: int) -> list[_Told]:
    return [await _ask(service.ask, request) for request in _draw_requests(user, num)]


def test_no_user_is_told_of_another(reliability: Reliability) -> None:
    num = reliability.choose(_NUM_ASKED_SHORT, _NUM_ASKED_FULL)
    problems = compare_users(reliability.choose(_NUM_USERS_SHORT, _NUM_USERS_FULL), num)
    figures = {"isolation_requests": num * _NUM_USERS_FULL, "isolation_foreign": len(problems)}
    reliability.record("isolation", figures, problems)


@pytest.mark.e2e
@pytest.mark.parametrize("runtime", [pytest.param(TRITON, marks=needs_triton), EMBEDDED])
async def test_real_servers_keep_users_apart(runtime: str, reliability: Reliability, tmp_path: Any) -> None:
    """Their logs and metrics have no text, either."""
    num = reliability.choose(_NUM_REAL_SHORT, _NUM_REAL_FULL)
    num_users = reliability.choose(4, 20)
    with run_server(find_real(), tmp_path / "state", runtime=runtime) as server:
        async with Client(server.url) as client:
            parts = [_ask_client(client, user, num // num_users) for user in range(num_users)]
            problems = [each for part in await asyncio.gather(*parts) for each in part]
        told = server.log + await asyncio.to_thread(server.read_metrics)
    problems += [f"the log or a metric has {word}" for word in {*_WORD.findall(told)}]
    name = f"isolation_{server.runtime_name}"
    reliability.record(name, {f"{name}_requests": num, f"{name}_foreign": len(problems)}, problems)


async def _ask_client(client: Client, user: int, num: int) -> list[str]:
    told = [await _ask(client.stream, request) for request in _draw_requests(user, num)]
    return [f"user {user} is told of {text}" for text, _ in told if _find_foreign(user, text)]
