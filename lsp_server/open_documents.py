"""The open documents, and which of them get suggestions by the rules of this moment."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from pygls.lsp.server import LanguageServer

from lsp_server.backend import BackendStarter
from lsp_server.documents import Document
from lsp_server.no_suggestion import SUPERSEDED, NoSuggestion, Reason, find_document_reason
from lsp_server.privacy.guard import Guard
from lsp_server.settings import ReadSettings, Settings
from lsp_server.status import Status

if TYPE_CHECKING:  # it imports NumPy, and the language server does not
    from inference.protocol.completion_arrays import Description

_MAX_OTHERS = 20  # other documents whose declarations may be sent, those that were opened or edited last
_OWN_WAIT_S, _OTHERS_WAIT_S = 0.5, 0.025  # that a key waits for the rules of its document, and of others
_UNDECIDED = (Reason.UNKNOWN_RULES, Reason.SUPERSEDED)


class OpenDocuments:
    """Applies the settings, the rules on what may be sent and the model's languages to the documents.

    The user is told when a document begins or ceases to get suggestions.
    """

    def __init__(
        self,
        server: LanguageServer,
        guard: Guard,
        status: Status,
        starter: BackendStarter,
        languages: tuple[str, ...] | None,
    ) -> None:
        """`server`: it knows the workspace folders. `languages`: those of the default model; None: any."""
        self.by_uri: dict[str, Document] = {}  # the one that was opened or edited last is last
        self.settings = self.chosen = Settings()  # `settings`: with a context that the connected server can take
        self.guard = guard
        self.served: Description | None = None  # by the connected server
        self._server = server
        self._status = status
        self._starter = starter
        self._default_languages = languages
        self.refusal: str | None = None  # why nothing may be sent, by the settings
        self._are_settings_known = False
        self._checks: dict[str, asyncio.Task[None]] = {}

    def open(self, document: Document) -> None:
        """Adds a document. If the rules allow suggestions in it, the completion server is started."""
        self.by_uri[document.uri] = document
        self.check_soon(document)

    def note_edit(self, document: Document) -> None:
        """Notes an edit, after which the text may be known, unknown or too large."""
        self.by_uri[document.uri] = self.by_uri.pop(document.uri)
        self.check(document)

    def close(self, document: Document) -> None:
        """Forgets a document."""
        del self.by_uri[document.uri]
        self._checks.pop(document.uri).cancel()
        self.guard.exclusions.forget(document.file_uri)
        self._status.forget(document.uri)

    def configure(self, read: ReadSettings, are_known: bool) -> None:
        """Sets the settings. `are_known`: the editor has answered the request for them. Until then nothing is sent."""
        is_other = (read.settings.model, read.settings.context) != (self.chosen.model, self.chosen.context)
        self.chosen, self.refusal, self._are_settings_known = read.settings, read.refusal, are_known
        if is_other:
            self.served = None
            self._starter.restart()
        self._fit_context()
        self._status.configured(read.problems)
        self._configure_guard()
        self.check_all_soon()

    def note_connected(self, description: "Description") -> None:
        """Sets the languages and the context of the connected server's model."""
        self.served = description
        self._fit_context()
        for document in self.by_uri.values():
            self.check(document)

    def check_all_soon(self) -> None:
        """Checks all documents in the background."""
        for document in self.by_uri.values():
            self.check_soon(document)

    def check_soon(self, document: Document) -> None:
        """Checks a document in the background, as soon as the rules for it are known."""
        check = self._checks.get(document.uri)
        if check is None or check.done():
            self._checks[document.uri] = asyncio.create_task(self._check_when_known(document))

    def check(self, document: Document) -> NoSuggestion | None:
        """Returns why a document gets no suggestions; None if it gets them. Tells the user if that has changed."""
        found = self.find_reason(document)
        if found is None or found.reason not in _UNDECIDED:
            self._status.checked(document.uri, found)
        return found

    async def check_by_new_rules(self, document: Document) -> NoSuggestion | None:
        """Does the same as `check`, but first reads rules again that are older than a second, if that is quick."""
        self._configure_guard()
        await self.guard.exclusions.ask(_list_languages([document]), is_own=True, wait_s=_OWN_WAIT_S)
        found = self.check(document)
        if found is not None and found.reason is Reason.UNKNOWN_RULES:
            self._status.checked(document.uri, found)
            self.check_soon(document)
        return found

    async def wait_for_rules(self, document: Document) -> None:
        """Waits until the rules say whether text of a document may be sent."""
        self._configure_guard()
        await self.guard.exclusions.ask(_list_languages([document]))

    async def find_others(self, document: Document, told_uris: Iterable[str] = ()) -> list[Document]:
        """Returns the other documents whose declarations may be sent with a text of this one, the newest first.

        `told_uris`: of other files whose declarations are sent, so that an exclusion of one is noticed.
        """
        others = [each for each in reversed(self.by_uri.values()) if each.language == document.language]
        languages = _list_languages(others[:_MAX_OTHERS]) | dict.fromkeys(told_uris, document.language_id)
        await self.guard.exclusions.ask(languages, wait_s=_OTHERS_WAIT_S)
        return [each for each in others[:_MAX_OTHERS] if self.find_reason(each) is None]

    def find_reason(self, document: Document) -> NoSuggestion | None:
        """Returns why a document gets no suggestions; None if it gets them."""
        if self.by_uri.get(document.uri) is not document:
            return SUPERSEDED
        exclusion = self.guard.exclusions.find_exclusion(document.file_uri)
        found = find_document_reason(document, self.settings, self._find_languages(), exclusion)
        if (
            found is not None
            and found.reason is Reason.EXCLUDED
            and not self.guard.exclusions.is_known(document.file_uri)
        ):
            return NoSuggestion(Reason.UNKNOWN_RULES, found.message)
        return found

    async def _check_when_known(self, document: Document) -> None:
        await self.wait_for_rules(document)
        if self.check(document) is None:
            self._starter.start()

    def _fit_context(self) -> None:
        limits = (self.chosen.context, None if self.served is None else self.served.context_tokens)
        known = [each for each in limits if each is not None]
        self.settings = replace(self.chosen, context=min(known, default=None))

    def _find_languages(self) -> tuple[str, ...] | None:
        """Returns those that the model knows; None: any, or it is not known."""
        default = self._default_languages if self.chosen.model is None else None
        return default if self.served is None else self.served.languages or default

    def _configure_guard(self) -> None:
        """Passes the settings on, each time before the guard is asked, because the workspace folders may change."""
        if self._are_settings_known:
            self.guard.configure(self.settings, list(self._server.workspace.folders), self.refusal)


def _list_languages(documents: list[Document]) -> dict[str, str]:
    return {document.file_uri: document.language_id for document in documents}
