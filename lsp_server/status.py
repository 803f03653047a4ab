"""What the user is told: the state of the completion server, why a document has no suggestions, and each error once."""

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Sequence
from enum import StrEnum
from urllib.parse import unquote

from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.lsp.server import LanguageServer

from inference.errors import MidtokenError
from lsp_server.errors import EditorError
from lsp_server.no_suggestion import DOCUMENT_REASONS, NoSuggestion, Reason, to_no_suggestion


class State(StrEnum):
    """The state of the suggestions, for all documents or for one."""

    STARTING = "starting"
    READY = "ready"
    OFF = "off"
    ERROR = "error"


# An implementation-dependent notification (LSP, "$ Notifications"): editors that do not know it ignore it.
STATUS_NOTIFICATION = "$/midtoken/status"


_SHOWN = (Reason.TOO_LARGE, Reason.UNKNOWN_LINE_ENDS, Reason.OTHER_LANGUAGE)  # the others are only logged


_Value = types.WorkDoneProgressBegin | types.WorkDoneProgressReport | types.WorkDoneProgressEnd


class Progress:
    """An activity as the editor shows it, if it can: LSP's $/progress, from now until `end`."""

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


class Status:
    """Tells the user about changes of state, each text in one line. An error of every keystroke is shown once.

    After a successful completion, the same error can be shown again. Why a document has no suggestions is told once
    for the document, or once for the language if the language is the reason.
    """

    def __init__(self, server: LanguageServer, is_remote: bool = False) -> None:
        """`is_remote`: the completion server, or what it asks, is started by somebody else."""
        self._server, self._is_remote = server, is_remote
        self._progress: Progress | None = None  # of the start that is under way
        self._is_downloading = False
        self._is_failing = False
        self._shown_errors: set[str] = set()
        self._shown_infos: set[str] = set()

    def starting(self) -> None:
        """There is no connection yet, and it is taking long enough to show that."""
        started = "starting the completion server; the first start takes about ten seconds"
        text = "connecting to the completion server" if self._is_remote else started
        self.begin_progress(text)
        self.report(State.STARTING, Reason.STARTING, text)

    def downloading(self, on_cancel: Callable[[], None], text: str, percentage: int) -> None:
        """The model is being downloaded. `on_cancel`: what to do when the user cancels that."""
        if percentage == 100:
            return self.starting()
        if not self._is_downloading:
            self.begin_progress(text, on_cancel)
            self._is_downloading = True
        if self._progress is not None:
            self._progress.report(text, percentage)
        self.report(State.STARTING, "downloading", f"{text} ({percentage} %)")

    def ready(self, start_s: float, runs_as: str = "") -> None:
        """The connection to the completion server works. `runs_as`: the model's numbers and threads, and why."""
        text = f"completion server ready after {start_s:.1f} s" + (f"; model as {runs_as}" if runs_as else "")
        self.end_progress(text)
        self.report(State.READY, "ready", text)

    def start_cancelled(self, why: str = "") -> None:
        """The start was cancelled. This is not an error. `why`: why there will be no other."""
        text = why or "start of the completion server cancelled"
        self.end_progress(text)
        self.report(State.OFF if why else State.READY, Reason.UNREACHABLE if why else "ready", text)

    def not_started(self, error: MidtokenError) -> None:
        """The completion server could not be started or reached."""
        self.end_progress("completion server not started")
        self.failed(error, Reason.UNREACHABLE)

    def working(self) -> None:
        """A completion has arrived."""
        self._shown_errors.clear()
        if self._is_failing:
            self._is_failing = False
            self.report(State.READY, "ready", "completions arrive again")

    def failed(self, error: MidtokenError, reason: Reason | None = None) -> None:
        """A completion failed. `reason`: None for that of the error."""
        text = " ".join(str(error).split()) or type(error).__name__
        self.show_error(text)
        if not isinstance(error, EditorError):  # otherwise only one document has no suggestions
            self._is_failing = True
            self.report(State.ERROR, reason or to_no_suggestion(error).reason, text)

    def checked(self, uri: str, found: NoSuggestion | None, is_asked: bool = False) -> None:
        """A document gets suggestions no longer, or again (None). `is_asked`: the user is asked what to do instead."""
        if found is None:
            self.report(State.READY, "ready", "", uri)
            return
        name = unquote(uri.rpartition("/")[2]) if "/" in uri else "a document"  # what is no URI may be anything
        self.log(f"{found.reason}: {name} gets no suggestions: {found.message}")
        state = State.STARTING if found.reason is Reason.UNKNOWN_RULES else State.OFF
        self.report(state, found.reason, found.message, uri)
        if found.reason in _SHOWN and found.message not in self._shown_infos and not is_asked:
            self._shown_infos.add(found.message)
            self.show(found.message)

    def not_suggested(self, found: NoSuggestion, is_invoked: bool) -> None:
        """A request has no suggestion. A person who asked for one, and could do something about it, is told why."""
        detail = f": {found.message}" if found.message else ""
        self.log(f"no suggestion ({found.reason}){detail}", types.MessageType.Log)
        if is_invoked and found.reason in DOCUMENT_REASONS:
            self.show(f"no suggestion: {found.message}")

    def show_error(self, text: str) -> None:
        """Shows an error, unless that was done before."""
        if text not in self._shown_errors:
            self._shown_errors.add(text)
            self.show(text, types.MessageType.Error)

    def log(self, text: str, kind: types.MessageType = types.MessageType.Info) -> None:
        """LSP window/logMessage."""
        self._server.window_log_message(types.LogMessageParams(kind, text))

    def show(self, text: str, kind: types.MessageType = types.MessageType.Info) -> None:
        """LSP window/showMessage."""
        self._server.window_show_message(types.ShowMessageParams(kind, f"midtoken: {text}"))

    async def ask(self, question: str, answers: Sequence[str], command: str) -> str | None:
        """LSP window/showMessageRequest. Returns the user's answer; None for none.

        An editor that cannot ask shows the question with a command for a terminal instead.
        """
        actions = [types.MessageActionItem(answer) for answer in answers]
        params = types.ShowMessageRequestParams(types.MessageType.Info, f"midtoken: {question}", actions)
        try:
            found = await self._server.window_show_message_request_async(params)
        except JsonRpcException:
            self.show(f"{question} In a terminal: {command}")
            return None
        return None if found is None else found.title

    def report(self, state: State, code: str, message: str, uri: str | None = None) -> None:
        """The notification `$/midtoken/status`. `code`: a Reason, `ready` or `downloading`. `uri`: None for all."""
        report = {"uri": uri, "state": state, "code": code, "message": message}
        self._server.protocol.notify(STATUS_NOTIFICATION, report)

    def begin_progress(self, text: str, on_cancel: Callable[[], object] | None = None) -> None:
        """Begins to show the start, and logs that. Ends what was begun before. `on_cancel`: see `Progress`."""
        self.end_progress(text)
        self._progress = Progress(self._server, text, on_cancel)

    def end_progress(self, text: str) -> None:
        """Ends what `begin_progress` began, and logs that."""
        self.log(text)
        self._is_downloading = False
        if self._progress is not None:
            self._progress.end(text)

    def open_progress(self, text: str, on_cancel: Callable[[], object]) -> Progress:
        """Begins to show another activity than the start."""
        self.log(text)
        return Progress(self._server, text, on_cancel)
