"""Sends logs, messages and progress to the editor over LSP."""

import dataclasses
import uuid

from lsprotocol import types
from pygls.lsp.server import LanguageServer

from lsp_server.reporting.status import StatusReport

# An implementation-dependent notification (LSP, "$ Notifications"): editors that do not know it ignore it.
STATUS_NOTIFICATION = "$/midtoken/status"


class LspWindow:
    """The `Window` of the connected editor."""

    def __init__(self, server: LanguageServer) -> None:
        self._server = server
        self._progress_token: str | None = None

    def log(self, text: str) -> None:
        """LSP window/logMessage."""
        self._server.window_log_message(types.LogMessageParams(types.MessageType.Info, text))

    def log_detail(self, text: str) -> None:
        """LSP window/logMessage, as the least important kind."""
        self._server.window_log_message(types.LogMessageParams(types.MessageType.Log, text))

    def show_info(self, text: str) -> None:
        """LSP window/showMessage, as information."""
        self._server.window_show_message(types.ShowMessageParams(types.MessageType.Info, text))

    def report(self, report: StatusReport) -> None:
        """The notification `$/midtoken/status`."""
        self._server.protocol.notify(STATUS_NOTIFICATION, dataclasses.asdict(report))

    def show_error(self, text: str) -> None:
        """LSP window/showMessage."""
        self._server.window_show_message(types.ShowMessageParams(types.MessageType.Error, text))

    def begin_progress(self, text: str) -> None:
        """LSP $/progress, if the editor supports it, and the log."""
        self.log(text)
        window = self._server.client_capabilities.window
        if window is not None and window.work_done_progress:
            self._progress_token = str(uuid.uuid4())
            self._server.work_done_progress.create(self._progress_token)
            begin = types.WorkDoneProgressBegin(title="midtoken", message=text, cancellable=False)
            self._server.work_done_progress.begin(self._progress_token, begin)

    def end_progress(self, text: str) -> None:
        """LSP $/progress, if `begin_progress` began one, and the log."""
        self.log(text)
        if self._progress_token is not None:
            self._server.work_done_progress.end(self._progress_token, types.WorkDoneProgressEnd(message=text))
            self._progress_token = None
