"""Has the text read around the place where the next key is expected, while nobody waits."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from lsprotocol.types import Range

from inference.errors import MidtokenError
from lsp_server.documents import Document

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

    def __init__(self, read: Callable[[Expectation], Awaitable[None]]) -> None:
        """`read` sends the request, and waits for its end. It may raise MidtokenError, which nobody is told."""
        self._read = read
        self._expected: Expectation | None = None
        self._task: asyncio.Task[None] | None = None

    def expect(self, expected: Expectation | None, after_s: float = _PAUSE_S) -> None:
        """Ends what runs. None: something has happened, and it is not known what comes next."""
        if self._task is not None:
            self._task.cancel()  # the server remembers what it has read
        self._expected = expected
        self._task = None if expected is None else asyncio.create_task(self._read_soon(expected, after_s))

    def expect_again(self) -> None:
        """Reads the place again that was expected last."""
        self.expect(self._expected)

    def forget(self, document: Document) -> None:
        """A document was closed."""
        if self._expected is not None and self._expected.document is document:
            self.expect(None)

    async def _read_soon(self, expected: Expectation, after_s: float) -> None:
        await asyncio.sleep(after_s)
        with contextlib.suppress(MidtokenError):  # the next key tells
            await self._read(expected)
