"""Messages of every kind: well-formed, changed, out of order, huge. The language server reads on, and answers.

An answer is due to each request, once, whatever its parameters are. The model answers at once or after some steps.
"""

import asyncio
import contextlib
import gc
import json
import logging
import time
from collections.abc import AsyncGenerator, Iterator
from itertools import islice
from random import Random
from typing import Any

from pygls.exceptions import JsonRpcException

from inference.protocol.completion import CompletionChunk, CompletionRequest, CompletionStats, FinishReason
from lsp_server.guard import Cleared
from lsp_server.server import CURSOR_NOTIFICATION
from tests.support.bare_lsp import INITIALIZE, BareLsp
from tests.support.lsp_fakes import FedBackend
from tests.support.mutations import change_bytes, change_json, draw_odd
from tests.support.reliability import Found, Reliability

_NUM_SHORT, _NUM_FULL = 3000, 1_000_000
_FRAMES_OF_SERVER = 1500
_HANG_S = 1.0  # of the processor
_ENDS_S = 20.0
_URIS = ("untitled:1", "file:///project/a.py", "file:///project/b.py", "memory:/1#cell", "notebook:1")


class _Backend(FedBackend):
    """Answers after some steps of the event loop."""

    def __init__(self) -> None:
        super().__init__()
        self._random = Random(3)

    async def stream(self, request: Cleared[CompletionRequest]) -> AsyncGenerator[CompletionChunk, None]:
        for _ in range(self._random.choice((0, 0, 1, len(request.value.prefix)))):
            await asyncio.sleep(0)
        yield CompletionChunk("x = 1", finish_reason=FinishReason.EXTENT, stats=CompletionStats())


def _write_messages(random: Random, number: int) -> tuple[dict[str, Any], ...]:
    """One message of each kind that an editor sends."""
    uri, place = random.choice(_URIS), {"line": random.randint(0, 3), "character": random.randint(0, 9)}
    document, span = {"uri": uri, "version": number}, {"start": place, "end": place}
    item = {**document, "languageId": random.choice(("python", "plaintext")), "text": "x = 1\n\ny\té = '😀'\r\n"}
    edit = random.choice(({"text": "a\nb"}, {"range": span, "text": random.choice(("", "a", "\r", "é\n"))}))
    cell = {"kind": 2, "document": uri}
    notebook = {"uri": "notebook:1", "version": number, "notebookType": "jupyter-notebook"}
    cells = {"structure": {"array": {"start": 0, "deleteCount": random.randint(0, 1), "cells": [cell]}}}
    asks = {"textDocument": document, "position": place, "context": {"triggerKind": random.randint(1, 2)}}
    folder = {"uri": f"file:///project/{number}", "name": "x"}
    requests: dict[str, Any] = {
        "textDocument/inlineCompletion": asks,
        "textDocument/completion": asks,
        "textDocument/hover": asks,
        f"$/unknown{number}": None,
    }
    notifications = {
        "textDocument/didOpen": {"textDocument": item},
        "textDocument/didChange": {"textDocument": document, "contentChanges": [edit]},
        "textDocument/didSave": {"textDocument": document},
        "textDocument/didClose": {"textDocument": document},
        "notebookDocument/didOpen": {"notebookDocument": {**notebook, "cells": [cell]}, "cellTextDocuments": [item]},
        "notebookDocument/didChange": {"notebookDocument": notebook, "change": {"cells": cells}},
        "notebookDocument/didClose": {"notebookDocument": notebook, "cellTextDocuments": [document]},
        "workspace/didChangeConfiguration": {"settings": {"midtoken": {"confidence": 0.5}}},
        "workspace/didChangeWorkspaceFolders": {"event": {"added": [folder] * (number % 50 == 0), "removed": []}},
        "workspace/didChangeWatchedFiles": {"changes": [{"uri": uri, "type": 2}]},
        CURSOR_NOTIFICATION: {"textDocument": document, "range": span},
        "$/cancelRequest": {"id": random.choice((number - 1, number - 2, "never"))},
        "$/setTrace": {"value": "verbose"},
        "initialized": {},
    }
    asked: Any = (
        random.choice([*requests.items()]) if random.random() < 0.5 else ("textDocument/inlineCompletion", asks)
    )
    told: Any = random.choice([*notifications.items()])
    return (
        {"jsonrpc": "2.0", "id": number, "method": asked[0], "params": asked[1]},
        {"jsonrpc": "2.0", "method": told[0], "params": told[1]},
        {"jsonrpc": "2.0", "method": "textDocument/didChange", "params": notifications["textDocument/didChange"]},
        {"jsonrpc": "2.0", "id": number, "result": [None]},
    )


def _iter_bodies(random: Random) -> Iterator[bytes]:
    """Bodies without an end. The first ones initialize the server."""
    yield json.dumps({"jsonrpc": "2.0", "id": "first", "method": "initialize", "params": INITIALIZE}).encode()
    yield json.dumps({"jsonrpc": "2.0", "method": "initialized", "params": {}}).encode()
    late: list[bytes] = []
    number = 0
    while True:
        number += 1
        message: Any = random.choices(_write_messages(random, number), (6, 6, 3, 0.3))[0]
        if random.random() < 0.45:
            part = "params" if "params" in message else "result"
            for _ in range(random.randint(1, 2)):
                message[part], _ = change_json(message[part], random)
        body = json.dumps(message).encode()
        chance = random.random()
        if chance < 0.05:
            body = change_bytes(body, random)
        elif chance < 0.0505:
            body = json.dumps({"jsonrpc": "2.0", "method": "x", "params": "a" * 2**20}).encode()
        elif chance < 0.055:
            body = random.choice((b"[" * 50_000, b"9" * 5000, b"", b"\xff", json.dumps(draw_odd(random)).encode()))
        if chance > 0.97:
            late.append(body)
        elif late and chance > 0.94:
            body = late.pop(0)  # out of order
        yield body


async def _serve(num: int, random: Random) -> Found:
    """Feeds one server in this process."""
    lsp = BareLsp(lambda *_: _connect())
    protocol, found = lsp.server.protocol, Found()
    for body in islice(_iter_bodies(random), num):
        began_s = time.thread_time()
        try:
            lsp.note(message := json.loads(body))
            protocol.handle_message(message)
        except Exception as error:  # as `run_async` of pygls does
            lsp.server.report_server_error(error, JsonRpcException)
        found.longest_s = max(found.longest_s, time.thread_time() - began_s)
        await asyncio.sleep(0)
    lsp.receive({"id": "last", "method": "shutdown"})
    with contextlib.suppress(TimeoutError):  # a request that is cancelled now is answered, too
        async with asyncio.timeout(_ENDS_S):
            while len(asyncio.all_tasks()) > 1:
                await asyncio.sleep(0.01)
            await lsp.settle()  # pygls writes an answer in the step after the one in which its task ends
    found.problems += [f"{name[:80]}: {more:+} answers" for name, more in lsp.wrongly_answered.items()]
    return found


async def _connect() -> FedBackend:
    return _Backend()


def feed_frames(num: int, seed: int) -> Found:
    """Feeds servers in this process with so many frames in all."""
    found = Found()
    logging.disable(logging.CRITICAL)  # each wrong message is logged
    gc.freeze()  # or a frame pays for a collection of all that earlier tests have left
    try:
        for at in range(0, num, _FRAMES_OF_SERVER):
            found.add(asyncio.run(_serve(min(num - at, _FRAMES_OF_SERVER), Random(f"{seed} {at}"))))
    finally:
        gc.unfreeze()
        logging.disable(logging.NOTSET)
    return found


def test_each_request_among_frames_of_every_kind_has_one_answer(reliability: Reliability) -> None:
    num, found = reliability.measure(feed_frames, _NUM_SHORT, _NUM_FULL)
    figures = {"lsp_frames": num, "lsp_wrong": len(found.problems), "lsp_longest_s": found.longest_s}
    reliability.record("lsp", figures, found.problems)
    assert found.longest_s < _HANG_S
