"""The language server, with a record of its requests to the completion server.

    python -m benchmarks.measures.recorded_lsp --server HOST:PORT --record FILE

It is the process that `midtoken lsp` runs, in which the connection notes times and statistics. They are written to
FILE when the editor leaves. The record contains source text around the cursor, so it is for benchmarks only.
Files of the workspace are read if there is a FOLDER for their indexes.
"""

import argparse
import json
import os
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from inference.client.client import Client
from inference.protocol.completion import CompletionChunk, CompletionRequest, Description
from lsp_server.backend import CompletionBackend
from lsp_server.exclusion import Policy
from lsp_server.guard import Cleared
from lsp_server.server import MidtokenServer, serve_stdio

NUM_KNOWN_CHARS = 64


@dataclass(slots=True)
class RequestRecord:
    """One request of the language server. Times are those of `time.perf_counter`, the same in all processes."""

    prefix_end: str  # up to NUM_KNOWN_CHARS characters before the cursor
    suffix_start: str  # and after it
    asked_at: float
    chunks_at: list[float] = field(default_factory=list)
    stats: dict[str, float] | None = None  # CompletionStats; None if the request was cancelled or failed
    is_prefetch: bool = False
    related_bytes: int = 0  # of other files

    def is_about(self, prefix: str, suffix: str) -> bool:
        """True if the request can be one for this text. Only the text next to the cursor is compared."""
        line = prefix[-NUM_KNOWN_CHARS:].rpartition("\n")[2]
        return self.prefix_end.endswith(line) and suffix.startswith(self.suffix_start)


class RecordingBackend:
    """Records what passes through a connection."""

    def __init__(self, client: Client, path: Path, context_tokens: int | None) -> None:
        self._client = client
        self.description = Description(context_tokens=context_tokens)
        self._path = path
        self._records: list[RequestRecord] = []

    async def stream(self, request: Cleared[CompletionRequest]) -> AsyncGenerator[CompletionChunk, None]:
        """See `CompletionBackend.stream`."""
        prefix_end, suffix_start = request.value.prefix[-NUM_KNOWN_CHARS:], request.value.suffix[:NUM_KNOWN_CHARS]
        record = RequestRecord(prefix_end, suffix_start, time.perf_counter(), is_prefetch=request.value.is_prefetch)
        record.related_bytes = sum(len(each.text.encode()) for each in request.value.related)
        self._records.append(record)
        async with aclosing(self._client.stream(request.value)) as chunks:
            async for chunk in chunks:
                record.chunks_at.append(time.perf_counter())
                if chunk.stats is not None:
                    record.stats = asdict(chunk.stats)
                yield chunk

    async def close(self) -> None:
        """Writes the record and closes the connection, in this order, because nobody waits long for the second."""
        self._path.write_text(json.dumps([asdict(record) for record in self._records]))
        await self._client.close()


def read_records(path: Path) -> list[RequestRecord]:
    """Returns the requests of a language server that has ended, in their order."""
    return [RequestRecord(**fields) for fields in json.loads(path.read_text())]


def main() -> NoReturn:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True)
    parser.add_argument("--record", type=Path, required=True)
    options = parser.parse_args()

    async def connect(*_: Any) -> CompletionBackend:
        client = Client(options.server)
        return RecordingBackend(client, options.record, (await client.read_description()).context_tokens)

    server = MidtokenServer(connect, policy=Policy(os.environ))
    serve_stdio(server)


if __name__ == "__main__":
    main()
