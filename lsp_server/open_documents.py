"""The open documents: which of them get suggestions by the rules of this moment, and what is sent for a request."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from inference.protocol.completion import Chunks, CompletionRequest, Description, Priority
from lsp_server.backend import BackendStarter
from lsp_server.documents import Change, Document
from lsp_server.errors import NotSentError
from lsp_server.exclusion import UNKNOWN
from lsp_server.guard import Cleared, Guard
from lsp_server.indentation import write_blanks
from lsp_server.no_suggestion import SUPERSEDED, NoSuggestion, Reason, find_document_reason, is_paste, to_no_suggestion
from lsp_server.open_files import find_path, list_pieces
from lsp_server.session import EditorRequest, Purpose, Session
from lsp_server.settings import ReadSettings, Settings
from lsp_server.status import Status

_MAX_OTHERS = 20  # other documents of which a piece may be sent, those that were opened or edited last
_MIN_CONTEXT_TOKENS = 2048  # in a smaller window, other files take more room than they are worth
_OWN_WAIT_S, _OTHERS_WAIT_S = 0.5, 0.025  # that a key waits for the rules of its document, and of others


class OpenDocument:
    """The text of a document, its requests, and what is known about it. Closing the document drops this object."""

    def __init__(
        self,
        text: Document,
        build: Callable[["OpenDocument", EditorRequest, Purpose], Awaitable[Cleared[CompletionRequest] | NoSuggestion]],
        starter: BackendStarter,
        status: Status,
    ) -> None:
        """`build`: returns what to send for a request in a document, or why nothing may be sent."""
        self.text = text
        self.session = Session(partial(build, self), starter, status)
        self.was_pasted = False  # what the last edit inserted (lsp_server.no_suggestion)
        self.off: NoSuggestion | None = None  # why it gets no suggestions, as the user was told
        self.check: asyncio.Task[None] | None = None  # waits for the rules, and then says whether it gets some
        self.offered: frozenset[str] = frozenset()  # what was suggested last, from the start of the cursor's line on

    def edit(self, version: int, changes: Sequence[Change]) -> None:
        """Applies the edits of one notification, and supersedes the waiting request. Raises EditorError."""
        self.session.note_edit()
        self.was_pasted = False
        self.text.apply(version, changes)
        self.was_pasted = is_paste(self.text.last_edit, self.offered)

    def close(self) -> None:
        """Cancels all that runs for the document, and ends the waiting request without a suggestion."""
        self.session.close()
        if self.check is not None:
            self.check.cancel()


class OpenDocuments:
    """Applies the settings, the rules on what may be sent and the model's languages to documents and their requests.

    The user is told when a document begins or ceases to get suggestions.
    """

    def __init__(
        self,
        list_folders: Callable[[], Iterable[str]],
        guard: Guard,
        status: Status,
        starter: BackendStarter,
        languages: tuple[str, ...] | None,
    ) -> None:
        """`list_folders`: the URIs of those of the workspace. `languages`: those of the default model; None: any."""
        self.by_uri: dict[str, OpenDocument] = {}  # the one that was opened or edited last is last
        self.chosen = ReadSettings(Settings(), ())
        self.served: Description | None = None  # by the connected server
        self.are_settings_known = False
        self._tenant = uuid.uuid4().hex  # the server shares nothing that it has cached with other editors
        self._list_folders = list_folders
        self._guard = guard
        self._status = status
        self._starter = starter
        self._default_languages = languages

    @property
    def settings(self) -> Settings:
        """Those that were chosen, with a context that the connected server can take."""
        chosen = self.chosen.settings
        limits = (chosen.context, None if self.served is None else self.served.context_tokens)
        return replace(chosen, context=min((each for each in limits if each is not None), default=None))

    def open(self, text: Document) -> OpenDocument:
        """Adds a document. If the rules allow suggestions in it, the completion server is started."""
        document = self.by_uri[text.uri] = OpenDocument(text, self.build, self._starter, self._status)
        self.check_soon(document)
        return document

    def note_edit(self, document: OpenDocument) -> None:
        """Notes an edit, after which the text may be known, unknown or too large."""
        self.by_uri[document.text.uri] = self.by_uri.pop(document.text.uri)
        self.check(document)

    def close(self, document: OpenDocument) -> None:
        """Forgets a document. It may be opened again in another language, so the editor is told if it was off."""
        del self.by_uri[document.text.uri]
        document.close()
        self._note(document, None)

    def configure(self, read: ReadSettings, are_known: bool) -> None:
        """Sets the settings. `are_known`: the editor has answered the request for them. Until then nothing is sent."""
        old, new = self.chosen.settings, read.settings
        self.chosen, self.are_settings_known = read, are_known
        if (new.model, new.context) != (old.model, old.context):
            self.served = None
            self._starter.restart()
        for problem in read.problems:
            self._status.show_error(problem)
        self.configure_guard()
        for document in self.by_uri.values():
            self.check_soon(document)

    def configure_guard(self) -> None:
        """Has the settings and the workspace's folders hold for what is sent."""
        if self.are_settings_known:
            self._guard.configure(self.settings, list(self._list_folders()), self.chosen.refusal)

    def note_connected(self, description: Description) -> None:
        """Sets the languages and the context of the connected server's model."""
        self.served = description
        for document in self.by_uri.values():
            self.check(document)

    def check_soon(self, document: OpenDocument) -> None:
        """Checks a document in the background, as soon as the rules for it are known."""
        if document.check is None or document.check.done():
            document.check = asyncio.create_task(self._check_when_known(document))

    def check(self, document: OpenDocument) -> NoSuggestion | None:
        """Returns why a document gets no suggestions; None if it gets them. Tells the user if that has changed."""
        found = self._find_reason(document)
        if found is None or found.reason not in (Reason.UNKNOWN_RULES, Reason.SUPERSEDED):
            self._note(document, found)
        return found

    async def check_by_new_rules(self, document: OpenDocument) -> NoSuggestion | None:
        """Does the same as `check`, but first reads rules again that are older than a second, if that is quick."""
        await self.read_rules([document], _OWN_WAIT_S)
        found = self.check(document)
        if found is not None and found.reason is Reason.UNKNOWN_RULES:
            self._note(document, found)
            self.check_soon(document)
        return found

    async def read_rules(self, documents: Iterable[OpenDocument], wait_s: float | None = None) -> None:
        """Waits until the rules say whether text of some documents may be sent."""
        languages = {each.text.file_uri: each.text.language_id for each in documents}
        await self._guard.exclusions.ask(languages, wait_s)

    async def build(
        self, document: OpenDocument, request: EditorRequest, purpose: Purpose
    ) -> Cleared[CompletionRequest] | NoSuggestion:
        """Returns what to send for a request in a document, or why nothing may be sent.

        Clearing the request is the last step: nothing is added after it.
        """
        text, settings, folders = document.text, request.settings, [*self._list_folders()]
        others = await self._find_others(document)
        found = self.check(document)
        if found is not None:
            return found
        try:
            own_text = write_blanks(self._guard.redact_context(request.context), text.language)
            complete = CompletionRequest(
                prefix=own_text.prefix,
                suffix=own_text.suffix,
                max_tokens=settings.max_tokens,
                healing=settings.healing,
                extent=settings.extent,
                deadline_ms=settings.deadline_ms,
                chunks=Chunks.LINES,
                tenant=self._tenant,
                document=text.random_id,
                related=list_pieces([each.text for each in others], folders, settings.related_bytes, self._guard),
                path=find_path(text.file_uri, folders),
            )
            uris = [each.text.file_uri for each in (document, *others)]
            return self._guard.clear(adapt(complete, purpose, request.confidence), uris)
        except NotSentError as error:
            return to_no_suggestion(error)

    async def _find_others(self, document: OpenDocument) -> list[OpenDocument]:
        """Returns the other documents of which pieces may be sent with a text of this one, the newest first."""
        reads_files = self.served is not None and self.served.reads_files
        if not reads_files or (self.settings.context or 0) < _MIN_CONTEXT_TOKENS:
            return []
        own = document.text
        others = [
            each
            for each in reversed(self.by_uri.values())
            if each.text.language == own.language and each.text.file_uri != own.file_uri
        ][:_MAX_OTHERS]
        await self.read_rules(others, _OTHERS_WAIT_S)
        return [each for each in others if self._find_reason(each) is None]

    def _find_reason(self, document: OpenDocument) -> NoSuggestion | None:
        if self.by_uri.get(document.text.uri) is not document:
            return SUPERSEDED
        default = self._default_languages if self.chosen.settings.model is None else None
        languages = default if self.served is None else self.served.languages or default
        exclusion = self._guard.exclusions.find_exclusion(document.text.file_uri)
        found = find_document_reason(document.text, self.settings, languages, exclusion)
        if found is not None and found.reason is Reason.EXCLUDED and exclusion == UNKNOWN:
            return NoSuggestion(Reason.UNKNOWN_RULES, found.message)
        return found

    def _note(self, document: OpenDocument, found: NoSuggestion | None) -> None:
        """Tells the user whether a document gets suggestions, if that has changed."""
        if found != document.off:
            document.off = found
            self._status.checked(document.text.uri, found)

    async def _check_when_known(self, document: OpenDocument) -> None:
        await self.read_rules([document])
        if self.check(document) is None:
            self._starter.start()


_NUM_DRAWN = 4  # of which some are equal
_TEMPERATURE = 0.8  # so that they differ, and still make sense
_SEED = 7  # the same cursor has the same alternatives
_DEADLINE_MS = 1500  # a user who cycles through suggestions does not wait longer


def adapt(request: CompletionRequest, purpose: Purpose, confidence: float) -> CompletionRequest:
    """Returns a request with the fields for its purpose. One for alternatives names no document: it supersedes none."""
    if purpose is Purpose.PREFETCH:
        return replace(request, priority=Priority.PREFETCH)
    if purpose is Purpose.BEST:
        return replace(request, min_probability=confidence)
    return replace(
        request,
        num_candidates=_NUM_DRAWN,
        temperature=_TEMPERATURE,
        seed=_SEED,
        deadline_ms=min(request.deadline_ms or _DEADLINE_MS, _DEADLINE_MS),
        document="",
    )
