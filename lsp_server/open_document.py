"""One open document, and all that the language server has for it: closing the document drops this object."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from inference.protocol.completion import CompletionRequest, RelatedFile
from lsp_server.backend import BackendStarter
from lsp_server.documents import Change, Document
from lsp_server.filters import Insertion
from lsp_server.no_suggestion import NoSuggestion, is_paste
from lsp_server.privacy.guard import Cleared
from lsp_server.project.declarations import Declaration, Summary
from lsp_server.session import EditorRequest, Purpose, Session
from lsp_server.status import Status


@dataclass(frozen=True, slots=True)
class ProjectContext:
    """What was read for a document, to send it with its requests."""

    summary: Summary = field(default_factory=Summary)  # of the document itself
    path: str = ""  # from the workspace folder on; empty: it is in none
    related: tuple[RelatedFile, ...] = ()
    uris: tuple[str, ...] = ()  # of the files in `related`
    num_edits: int | None = None  # of the document, when it was summarized


# Returns what to send for a request in a document, or why nothing may be sent.
Build = Callable[["OpenDocument", EditorRequest, Purpose], Awaitable[Cleared[CompletionRequest] | NoSuggestion]]


class OpenDocument:
    """The text of a document, its requests, and what is known about it."""

    def __init__(self, text: Document, build: Build, starter: BackendStarter, status: Status) -> None:
        self.text = text
        self.session = Session(partial(build, self), starter, status)
        self.was_pasted = False  # what the last edit inserted (lsp_server.no_suggestion)
        self.off: NoSuggestion | None = None  # why it gets no suggestions, as the user was told
        self.check: asyncio.Task[None] | None = None  # waits for the rules, and then says whether it gets some
        self.project = ProjectContext()
        self.reading: asyncio.Task[None] | None = None  # what is in `project`
        self.is_due = False  # to be read, or to be read again
        self.rest: asyncio.TimerHandle | None = None  # after which it is read
        self.comments: dict[int, list[Declaration]] = {}  # see `insert_declarations`
        self._offered: frozenset[str] = frozenset()  # what was suggested last, from the start of the cursor's line on

    def edit(self, version: int, changes: Sequence[Change]) -> None:
        """Applies the edits of one notification, and supersedes the waiting request. Raises EditorError."""
        self.session.note_edit()
        self.was_pasted = False
        self.text.apply(version, changes)
        self.was_pasted = is_paste(self.text.last_edit, self._offered)

    def mark_out_of_sync(self) -> None:
        """Marks the text as unknown, and supersedes the waiting request. Raises OutOfSyncError if it was known."""
        self.session.note_edit()
        self.text.mark_out_of_sync("the editor sent an edit that cannot be read")

    def note_offered(self, line_before: str, insertions: Sequence[Insertion]) -> None:
        """Notes what the editor is given to show. `line_before`: the cursor's line up to the cursor."""
        self._offered = frozenset(line_before + each.text for each in insertions)

    def cancel_rest(self) -> None:
        """Has the document not read after the rest that it is in."""
        if self.rest is not None:
            self.rest.cancel()

    def close(self) -> None:
        """Cancels all that runs for the document, and ends the waiting request without a suggestion."""
        self.session.close()
        self.cancel_rest()
        for task in (self.check, self.reading):
            if task is not None:
                task.cancel()
