"""An editor that sends the keys of a session to a language server on stdio, and notes when they are answered.

Messages are built before the clock starts. As editors do, it sends the edit, cancels the request of the key before if
that has no answer yet, and asks for a completion at the cursor.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.corpora.typing import KeyKind, Session
from benchmarks.measures.lsp_client import Answer, LspClient, build_message, find_place

_PAUSE_S = 0.4  # longer ones are pauses, of which so much is waited
_SETTLING_S = 3.0  # in which the opened documents are read


@dataclass(frozen=True, slots=True)
class PressedKey:
    """A key that was sent, and its answer; that of one without an answer came when it was known that there is none."""

    sent_at: float  # on the clock of `time.perf_counter`
    answer: Answer


async def replay(command: Sequence[str], session: Session, max_gap_s: float = 2.0) -> list[PressedKey]:
    """Plays the session to a new recorded language server, which is connected to its server and has the documents.

    Raises RuntimeError if it has failed.
    """
    uris = [f"file:///replay/{index}.py" for index in range(len(session.documents))]
    client = await LspClient.start(command)
    await client.wait_for_server("file:///replay/-1.py")
    for uri, text in zip(uris, session.documents, strict=True):
        client.open(uri, text)
    await asyncio.sleep(_SETTLING_S)
    pressed = await _play(client, session, uris, max_gap_s)
    await client.leave()
    return pressed


async def _play(client: LspClient, session: Session, uris: Sequence[str], max_gap_s: float) -> list[PressedKey]:
    """Sends all keys of the session. Returns those that ask, when each has an answer or is known to have none.

    Each key follows as soon as the one before is answered, and after `max_gap_s` at the latest; but of a pause
    before it, and of the time after a move, `_PAUSE_S` are waited at most. Where the cursor is, and what is
    selected, is told at once.
    """
    texts = [*session.documents]
    sent: list[tuple[float, asyncio.Future[Answer]]] = []
    has_moved = False
    for moment in session.iter_moments():
        key, uri, before = moment.key, uris[moment.key.document], texts[moment.key.document]
        start, end = find_place(before, key.start), find_place(before, key.end)
        if key.kind is KeyKind.DELETE:
            client.rest(uri, start, end)
        if key.is_edit and (key.gap_s >= _PAUSE_S or has_moved):
            await asyncio.sleep(min(key.gap_s, _PAUSE_S))
        has_moved = not key.is_edit
        cursor = find_place(moment.text, key.cursor)
        if has_moved:
            client.rest(uri, cursor, cursor)
            continue
        edit = client.build_edit(uri, start, end, key.text)
        request_id, request = client.build_request(uri, cursor)
        texts[key.document] = moment.text
        if sent and not sent[-1][1].done():
            edit += build_message("$/cancelRequest", {"id": request_id - 1})
        sent.append((time.perf_counter(), client.send(edit + request, request_id)))
        await asyncio.wait([sent[-1][1]], timeout=max_gap_s)
    return [PressedKey(sent_at, await answer) for sent_at, answer in sent]
