"""An activity as an editor shows it: LSP's $/progress, if the editor supports that."""

import asyncio
import contextlib
import uuid
from collections.abc import Callable

from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.lsp.server import LanguageServer

_Value = types.WorkDoneProgressBegin | types.WorkDoneProgressReport | types.WorkDoneProgressEnd


class Progress:
    """One activity, from now until `end`."""

    def __init__(self, server: LanguageServer, text: str, on_cancel: Callable[[], object] | None = None) -> None:
        """`on_cancel`: what to do when the user cancels it; None: that is not offered, and no percentage is shown."""
        self._server, self._on_cancel = server, on_cancel
        self._values = asyncio.Queue[_Value]()
        begin = types.WorkDoneProgressBegin("midtoken", message=text, cancellable=on_cancel is not None)
        begin.percentage = None if on_cancel is None else 0
        self._values.put_nowait(begin)
        window = server.client_capabilities.window
        if window is not None and window.work_done_progress:
            self._showing = asyncio.create_task(self._show())

    def report(self, text: str, percentage: int) -> None:
        """Shows how far it is."""
        self._values.put_nowait(types.WorkDoneProgressReport(message=text, percentage=percentage))

    def end(self, text: str) -> None:
        """Ends it. Further calls do nothing."""
        self._values.put_nowait(types.WorkDoneProgressEnd(message=text))

    async def _show(self) -> None:
        """Shows it until it ends, if the editor allows its token."""
        token, progress = str(uuid.uuid4()), self._server.work_done_progress
        with contextlib.suppress(JsonRpcException):
            await progress.create_async(token)
            if self._on_cancel is not None:
                on_cancel = self._on_cancel
                progress.tokens[token].add_done_callback(lambda _: on_cancel())
            value: _Value | None = None
            while not isinstance(value, types.WorkDoneProgressEnd):
                value = await self._values.get()
                self._server.protocol.notify(types.PROGRESS, types.ProgressParams(token, value))
            del progress.tokens[token]
