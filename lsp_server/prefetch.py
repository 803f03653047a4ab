"""Has the text read around the place where the next key is expected, while nobody waits."""

import asyncio
import contextlib
from contextlib import aclosing
from dataclasses import dataclass, replace

from lsprotocol.types import Range

from inference.errors import MidtokenError
from lsp_server.backend import BackendStarter
from lsp_server.battery import Battery
from lsp_server.context import cut_excerpt
from lsp_server.documents import Document
from lsp_server.editor_request import EditorRequest, build_editor_request
from lsp_server.no_suggestion import NoSuggestion
from lsp_server.open_documents import OpenDocuments
from lsp_server.request_builder import Purpose, RequestBuilder

_PAUSE_S = 0.15  # keys that follow each other are mostly closer
REST_S = 0.05  # the cursor is moved on much sooner while a key is held


@dataclass(frozen=True, slots=True)
class Expectation:
    """What the next key is expected to find: a document in which `text` has replaced `span`. The cursor follows it."""

    document: Document
    span: Range
    text: str = ""

    @property
    def is_imagined(self) -> bool:
        """True if this is not the text of the document now."""
        return self.text != "" or self.span.start != self.span.end


class Prefetcher:
    """Has at most one place read at a time: the one that was expected last, if nothing happened for a moment."""

    def __init__(self, documents: OpenDocuments, builder: RequestBuilder, starter: BackendStarter) -> None:
        self.battery = Battery()
        self._documents = documents
        self._builder = builder
        self._starter = starter
        self._expected: Expectation | None = None
        self._task: asyncio.Task[None] | None = None

    def expect(self, expected: Expectation | None, after_s: float = _PAUSE_S) -> None:
        """Ends what runs. None: something has happened, and it is not known what comes next."""
        if self._task is not None:
            self._task.cancel()  # the server remembers what it has read
        self._expected = expected
        self._task = None if expected is None else asyncio.create_task(self._prefetch_soon(expected, after_s))

    def expect_again(self) -> None:
        """Reads the place again that was expected last."""
        self.expect(self._expected)

    def forget(self, document: Document) -> None:
        """A document was closed."""
        if self._expected is not None and self._expected.document is document:
            self.expect(None)

    async def _prefetch_soon(self, expected: Expectation, after_s: float) -> None:
        await asyncio.sleep(after_s)
        if self._may_prefetch():
            with contextlib.suppress(MidtokenError):  # the next key tells
                await self._prefetch(expected)

    def _may_prefetch(self) -> bool:
        settings = self._documents.settings
        is_saving = self._documents.quiet.minutes_left or self.battery.is_below(settings.prefetch_min_battery)
        return settings.prefetch and not is_saving

    async def _prefetch(self, expected: Expectation) -> None:
        """Has the server read what the next key will send, by the rules for keys."""
        await self._documents.wait_for_rules(expected.document)
        cleared = await self._builder.build(self._imagine(expected), Purpose.PREFETCH)
        if isinstance(cleared, NoSuggestion):
            return
        backend = await self._starter.get()
        if backend is not None:
            async with aclosing(backend.stream(cleared)) as chunks:
                async for _ in chunks:
                    pass

    def _imagine(self, expected: Expectation) -> EditorRequest:
        document, settings = expected.document, self._documents.settings
        cut_excerpt(document, expected.span.start, settings, is_waited_for=False)  # the window moves
        imagined, position = document.imagine(expected.span, expected.text)
        request = build_editor_request(imagined, position, settings)
        return replace(request, document=document, is_imagined=expected.is_imagined)
