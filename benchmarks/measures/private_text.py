"""What a language server sends of private files and of secrets: all requests that reach a recording backend."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from benchmarks.corpora.private_files import count_secret_bytes, iter_excluded, iter_secrets
from inference.protocol.completion import CompletionChunk, CompletionRequest, CompletionStats, FinishReason
from lsp_server.backend import CompletionBackend
from lsp_server.features import build_server
from lsp_server.messages import serve_messages

_AFTER = "\n\n\ndef after():\n    return 1\n"


@dataclass(frozen=True, slots=True)
class SentText:
    """What was sent and said, and what of it should not have been."""

    num_documents: int
    num_asked: int  # documents that were asked about at least once
    sent: tuple[str, ...]  # the text of each request
    said: tuple[str, ...]  # each message to the editor, as JSON
    secrets: tuple[str, ...]

    @property
    def secret_bytes_sent(self) -> int:
        """The bytes of secrets and of excluded files in requests."""
        return count_secret_bytes(self.sent, self.secrets)

    @property
    def secret_bytes_said(self) -> int:
        """The bytes of them in messages to the editor, such as logs."""
        return count_secret_bytes(self.said, self.secrets)


async def collect_sent_text(folder: Path) -> SentText:
    """Types into each private file and around each secret, and asks at each key. `folder` is an empty one."""
    backend = _RecordingBackend()
    num_documents, num_asked, secrets = 0, 0, list[str]()
    for number, case in enumerate(iter_excluded()):
        secrets.append(case.marker)
        workspace = folder / f"case{number}"  # its name may be said, so it has nothing of the marker
        document = case.build(workspace)
        editor = await _Editor.start(backend, workspace, case.setting)
        for path in (document, workspace / case.harmless):
            before = len(backend.sent)
            await editor.type_into(path, path.read_text())
            num_documents, num_asked = num_documents + 1, num_asked + (len(backend.sent) > before)
        editor.close()
    editor = await _Editor.start(backend, folder, ())
    for number, secret in enumerate(iter_secrets()):
        secrets.append(secret.secret)
        before = len(backend.sent)
        await editor.type_into(folder / f"open{number}.py", f"import os\n{secret.text}value = 1\n")
        num_documents, num_asked = num_documents + 1, num_asked + (len(backend.sent) > before)
    editor.close()
    said = tuple(json.dumps(message) for message in backend.said)
    return SentText(num_documents, num_asked, tuple(backend.sent), said, tuple(secrets))


class _RecordingBackend:
    """Answers every request with one line."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.said: list[Any] = []

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[CompletionChunk, None]:
        self.sent.append(f"{request.prefix}|{request.suffix}")
        yield CompletionChunk("x", finish_reason=FinishReason.EXTENT, stats=CompletionStats())

    async def close(self) -> None:
        pass


class _Editor:
    """Speaks LSP with a language server in this process."""

    def __init__(self, backend: _RecordingBackend) -> None:
        async def connect() -> CompletionBackend:
            return backend

        self._backend = backend
        self._input = asyncio.StreamReader()
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._num_requests = 0
        server = build_server(connect)
        server.protocol.set_writer(self)
        self._serving = asyncio.create_task(serve_messages(self._input, server.protocol, server.settle))

    @classmethod
    async def start(cls, backend: _RecordingBackend, folder: Path, exclude: Sequence[str]) -> Self:
        """Initializes a server for one workspace folder."""
        editor = cls(backend)
        capabilities = {"textDocument": {"inlineCompletion": {}}, "general": {"positionEncodings": ["utf-32"]}}
        workspace = [{"uri": folder.as_uri(), "name": folder.name}]
        params = {"capabilities": capabilities, "workspaceFolders": workspace, "processId": None, "rootUri": None}
        await editor._request("initialize", {**params, "initializationOptions": {"exclude": list(exclude)}})
        editor._send({"method": "initialized", "params": {}})
        return editor

    async def type_into(self, path: Path, text: str) -> None:
        """Opens a document, asks at each cursor of it, adds text at its end and asks there."""
        document = {"uri": path.as_uri(), "version": 0}
        opened = {**document, "languageId": "python", "text": text + _AFTER}
        self._send({"method": "textDocument/didOpen", "params": {"textDocument": opened}})
        lines = text.split("\n")
        for number, line in enumerate(lines):
            for character in range(0, len(line) + 1, 1 + len(line) // 4):
                await self._ask(path, number, character)
        for version, char in enumerate("value", 1):
            at = {"line": len(lines) - 1, "character": version - 1}
            change = {"range": {"start": at, "end": at}, "text": char}
            params = {"textDocument": {**document, "version": version}, "contentChanges": [change]}
            self._send({"method": "textDocument/didChange", "params": params})
            await self._ask(path, len(lines) - 1, version)

    def write(self, data: bytes) -> None:
        """Takes a message of the server."""
        message = json.loads(data.partition(b"\r\n\r\n")[2])
        if "method" in message:
            self._backend.said.append(message)
        elif message.get("id") in self._answers:
            self._answers.pop(message["id"]).set_result(message)

    def close(self) -> None:
        """Ends the server."""
        self._serving.cancel()

    async def _ask(self, path: Path, line: int, character: int) -> None:
        position = {"line": line, "character": character}
        params = {"textDocument": {"uri": path.as_uri()}, "position": position, "context": {"triggerKind": 2}}
        await self._request("textDocument/inlineCompletion", params)

    async def _request(self, method: str, params: Any) -> Any:
        self._num_requests += 1
        number = self._num_requests
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        self._send({"id": number, "method": method, "params": params})
        return await asyncio.wait_for(answer, 60)

    def _send(self, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._input.feed_data(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
