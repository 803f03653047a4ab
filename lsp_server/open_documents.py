"""The open documents: which of them get suggestions by the rules of this moment, and what is sent for a request."""

import asyncio
import uuid
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from inference.protocol.completion import Chunks, CompletionRequest, Priority, RelatedFile
from lsp_server.backend import BackendStarter
from lsp_server.errors import NotSentError
from lsp_server.indentation import write_blanks
from lsp_server.no_suggestion import SUPERSEDED, NoSuggestion, Reason, find_document_reason, to_no_suggestion
from lsp_server.open_document import OpenDocument
from lsp_server.privacy.guard import Cleared, Guard
from lsp_server.related import insert_declarations, write_comments
from lsp_server.session import EditorRequest, Purpose
from lsp_server.settings import ReadSettings, Settings
from lsp_server.status import Status

if TYPE_CHECKING:  # it imports NumPy, and the language server does not
    from inference.protocol.completion import Description

_MAX_OTHERS = 20  # other documents whose declarations may be sent, those that were opened or edited last
_MAX_WORD_BYTES = 300  # of declarations of the typed word, which stand above the line
_OWN_WAIT_S, _OTHERS_WAIT_S = 0.5, 0.025  # that a key waits for the rules of its document, and of others
_UNDECIDED = (Reason.UNKNOWN_RULES, Reason.SUPERSEDED)


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
        self.chosen = Settings()
        self.served: Description | None = None  # by the connected server
        self._tenant = uuid.uuid4().hex  # the server shares nothing that it has cached with other editors
        self._list_folders = list_folders
        self._guard = guard
        self._status = status
        self._starter = starter
        self._default_languages = languages
        self.refusal: str | None = None  # why nothing may be sent, by the settings
        self.are_settings_known = False

    @property
    def settings(self) -> Settings:
        """Those that were chosen, with a context that the connected server can take."""
        limits = (self.chosen.context, None if self.served is None else self.served.context_tokens)
        return replace(self.chosen, context=min((each for each in limits if each is not None), default=None))

    def open(self, document: OpenDocument) -> None:
        """Adds a document. If the rules allow suggestions in it, the completion server is started."""
        self.by_uri[document.text.uri] = document
        self.check_soon(document)

    def note_edit(self, document: OpenDocument) -> None:
        """Notes an edit, after which the text may be known, unknown or too large."""
        self.by_uri[document.text.uri] = self.by_uri.pop(document.text.uri)
        self.check(document)

    def close(self, document: OpenDocument) -> None:
        """Forgets a document. It may be opened again in another language, so the editor is told if it was off."""
        del self.by_uri[document.text.uri]
        document.close()
        self._guard.exclusions.forget(document.text.file_uri)
        self._note(document, None)

    def configure(self, read: ReadSettings, are_known: bool) -> None:
        """Sets the settings. `are_known`: the editor has answered the request for them. Until then nothing is sent."""
        is_other = (read.settings.model, read.settings.context) != (self.chosen.model, self.chosen.context)
        self.chosen, self.refusal, self.are_settings_known = read.settings, read.refusal, are_known
        if is_other:
            self.served = None
            self._starter.restart()
        self._status.configured(read.problems)
        self._configure_guard()
        for document in self.by_uri.values():
            self.check_soon(document)

    def note_connected(self, description: "Description") -> None:
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
        if found is None or found.reason not in _UNDECIDED:
            self._note(document, found)
        return found

    async def check_by_new_rules(self, document: OpenDocument) -> NoSuggestion | None:
        """Does the same as `check`, but first reads rules again that are older than a second, if that is quick."""
        self._configure_guard()
        await self._guard.exclusions.ask(_list_languages([document]), is_own=True, wait_s=_OWN_WAIT_S)
        found = self.check(document)
        if found is not None and found.reason is Reason.UNKNOWN_RULES:
            self._note(document, found)
            self.check_soon(document)
        return found

    async def wait_for_rules(self, document: OpenDocument) -> None:
        """Waits until the rules say whether text of a document may be sent."""
        self._configure_guard()
        await self._guard.exclusions.ask(_list_languages([document]))

    async def build(
        self, document: OpenDocument, request: EditorRequest, purpose: Purpose
    ) -> Cleared[CompletionRequest] | NoSuggestion:
        """Returns what to send for a request in a document, or why nothing may be sent.

        Clearing the request is the last step: nothing is added after it.
        """
        text, settings = document.text, request.settings
        others = await self._find_others(document)
        found = self.check(document)
        if found is not None:
            return found
        try:
            own_text = write_blanks(self._guard.redact_context(request.context), text.language)
            declared = [each.project.summary.declarations for each in others if each.text.file_uri != text.file_uri]
            max_bytes = min(_MAX_WORD_BYTES, settings.related_bytes)
            prefix = insert_declarations(
                own_text, text.language, declared, document.comments, max_bytes, request.is_expected
            )
            complete = CompletionRequest(
                prefix=prefix,
                suffix=own_text.suffix,
                max_tokens=settings.max_tokens,
                healing=settings.healing,
                extent=settings.extent,
                deadline_ms=settings.deadline_ms,
                chunks=Chunks.LINES,
                tenant=self._tenant,
                document=text.random_id,
                related=self._write_related(document),
                path=document.project.path,
            )
            uris = [each.text.file_uri for each in (document, *others)]
            return self._guard.clear(adapt(complete, purpose, request.confidence), uris)
        except NotSentError as error:
            return to_no_suggestion(error)

    def list_related(self, document: OpenDocument) -> list[tuple[RelatedFile, str]]:
        """Returns what to send of other files with a document, and their URIs, without those that are excluded now."""
        files = zip(document.project.related, document.project.uris, strict=True)
        return [(file, uri) for file, uri in files if not self._guard.exclusions.is_excluded(uri)]

    def _write_related(self, document: OpenDocument) -> tuple[RelatedFile, ...]:
        files = tuple(file for file, _ in self.list_related(document))
        return files if self.served and self.served.reads_files else write_comments(files, document.text.language_id)

    async def _find_others(self, document: OpenDocument) -> list[OpenDocument]:
        """Returns the other documents whose declarations may be sent with a text of this one, the newest first.

        The rules for the files of its project context are read again, too, so that an exclusion of one is noticed.
        """
        text = document.text
        others = [each for each in reversed(self.by_uri.values()) if each.text.language == text.language][:_MAX_OTHERS]
        related = [uri for _, uri in self.list_related(document)]
        languages = _list_languages(others) | dict.fromkeys(related, text.language_id)
        await self._guard.exclusions.ask(languages, wait_s=_OTHERS_WAIT_S)
        return [each for each in others if self._find_reason(each) is None]

    def _find_reason(self, document: OpenDocument) -> NoSuggestion | None:
        uri, exclusions = document.text.file_uri, self._guard.exclusions
        if self.by_uri.get(document.text.uri) is not document:
            return SUPERSEDED
        exclusion = exclusions.find_exclusion(uri)
        found = find_document_reason(document.text, self.settings, self._find_languages(), exclusion)
        if found is not None and found.reason is Reason.EXCLUDED and not exclusions.is_known(uri):
            return NoSuggestion(Reason.UNKNOWN_RULES, found.message)
        return found

    def _note(self, document: OpenDocument, found: NoSuggestion | None) -> None:
        """Tells the user whether a document gets suggestions, if that has changed."""
        if found != document.off:
            document.off = found
            self._status.checked(document.text.uri, found)

    async def _check_when_known(self, document: OpenDocument) -> None:
        await self.wait_for_rules(document)
        if self.check(document) is None:
            self._starter.start()

    def _find_languages(self) -> tuple[str, ...] | None:
        """Returns those that the model knows; None: any, or it is not known."""
        default = self._default_languages if self.chosen.model is None else None
        return default if self.served is None else self.served.languages or default

    def _configure_guard(self) -> None:
        """Passes the settings on, each time before the guard is asked, because the workspace folders may change."""
        if self.are_settings_known:
            self._guard.configure(self.settings, list(self._list_folders()), self.refusal)


def _list_languages(documents: list[OpenDocument]) -> dict[str, str]:
    return {document.text.file_uri: document.text.language_id for document in documents}


_NUM_DRAWN = 4  # of which some are equal
_TEMPERATURE = 0.8
_SEED = 7  # the same cursor has the same alternatives
_DEADLINE_MS = 1500


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
