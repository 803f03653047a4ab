"""Builds what is sent to the completion server for a request of the editor."""

import enum
import uuid
from dataclasses import replace

from inference.protocol.completion import Chunks, CompletionRequest, Priority
from lsp_server.editor_request import EditorRequest
from lsp_server.errors import NotSentError
from lsp_server.indentation import write_blanks
from lsp_server.no_suggestion import NoSuggestion, to_no_suggestion
from lsp_server.open_documents import OpenDocuments
from lsp_server.privacy.guard import Cleared
from lsp_server.related import RelatedText


class Purpose(enum.Enum):
    """What the answer is for."""

    BEST = enum.auto()  # the most likely text
    ALTERNATIVES = enum.auto()  # some other texts, drawn at random
    PREFETCH = enum.auto()  # no answer: the server caches the text before a key asks for it


class RequestBuilder:
    """Builds requests by the current rules. Clearing a request is the last step: nothing is added after it."""

    def __init__(self, documents: OpenDocuments) -> None:
        self._documents = documents
        self._related = RelatedText()
        self._tenant = uuid.uuid4().hex  # the server shares nothing that it has cached with other editors

    async def build(self, request: EditorRequest, purpose: Purpose) -> Cleared[CompletionRequest] | NoSuggestion:
        """Returns what to send, or why nothing may be sent."""
        document, guard = request.document, self._documents.guard
        others = await self._documents.find_others(document)
        found = self._documents.check(document)
        if found is not None:
            return found
        try:
            own_text = write_blanks(guard.redactor.redact_excerpt(request.excerpt), document.language_id)
            self._related.max_bytes = request.settings.max_related_bytes
            prefix = self._related.add(own_text, document, others, request.is_imagined)
            complete = CompletionRequest(
                prefix=prefix,
                suffix=own_text.suffix,
                max_tokens=request.settings.max_tokens,
                healing=request.settings.healing,
                extent=request.settings.extent,
                deadline_ms=request.settings.deadline_ms,
                chunks=Chunks.LINES,
                tenant=self._tenant,
                document=document.random_id,
            )
            uris = [each.file_uri for each in (document, *others)]
            return guard.clear(adapt(complete, purpose, request.confidence), uris)
        except NotSentError as error:
            return to_no_suggestion(error)

    def forget(self, uri: str) -> None:
        """Forgets a document that was closed."""
        self._related.forget(uri)


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
