"""Has the server cache the text around the place of the next key, while the user does nothing."""

import asyncio
import contextlib
from dataclasses import dataclass, replace

from lsprotocol.types import Range

from inference.errors import MidtokenError
from lsp_server.backend import BackendStarter
from lsp_server.context import move_window
from lsp_server.no_suggestion import NoSuggestion
from lsp_server.open_document import OpenDocument
from lsp_server.open_documents import OpenDocuments
from lsp_server.session import EditorRequest, Purpose, build_editor_request, read_texts

_PAUSE_S = 0.15  # keys that follow each other are mostly closer
CURSOR_REST_S = 0.05  # the cursor is moved on much sooner while a key is held


@dataclass(frozen=True, slots=True)
class Expectation:
    """What the next key will probably find: a document in which `text` has replaced `span`, and the cursor after it."""

    document: OpenDocument
    span: Range
    text: str = ""


class Prefetcher:
    """Prefetches one place at a time: the one that was expected last, after a short time without any event."""

    def __init__(self, documents: OpenDocuments, starter: BackendStarter) -> None:
        self._documents = documents
        self._starter = starter
        self._expected: Expectation | None = None
        self._task: asyncio.Task[None] | None = None

    def schedule(self, expected: Expectation | None, after_s: float = _PAUSE_S) -> None:
        """Cancels what runs, and prefetches a place after a pause. None: nothing, since the place is not known."""
        if self._task is not None:
            self._task.cancel()  # the server keeps what it has cached
        self._expected = expected
        self._task = None if expected is None else asyncio.create_task(self._prefetch_soon(expected, after_s))

    def reschedule(self) -> None:
        """Prefetches the place again that was expected last."""
        self.schedule(self._expected)

    def forget(self, document: OpenDocument) -> None:
        """Cancels what runs for a document that was closed."""
        if self._expected is not None and self._expected.document is document:
            self.schedule(None)

    async def _prefetch_soon(self, expected: Expectation, after_s: float) -> None:
        await asyncio.sleep(after_s)
        if self._documents.settings.prefetch:
            with contextlib.suppress(MidtokenError):  # the next key reports it
                await self._prefetch(expected)

    async def _prefetch(self, expected: Expectation) -> None:
        """Sends what the next key will send. The same rules apply as for a key."""
        await self._documents.wait_for_rules(expected.document)
        cleared = await self._documents.build(expected.document, self._build_request(expected), Purpose.PREFETCH)
        if isinstance(cleared, NoSuggestion):
            return
        backend = await self._starter.get()
        if backend is not None:
            await read_texts(backend, cleared)

    def _build_request(self, expected: Expectation) -> EditorRequest:
        document, settings = expected.document.text, self._documents.settings
        move_window(document, expected.span.start, settings, is_waited_for=False)
        edited, position = document.with_edit(expected.span, expected.text)
        request = build_editor_request(edited, position, settings)
        is_expected = expected.text != "" or expected.span.start != expected.span.end
        return replace(request, is_expected=is_expected)
