"""Builds what is sent to the completion server for a request of the editor."""

import uuid
from dataclasses import replace

from inference.protocol.completion import Chunks, CompletionRequest, Priority, RelatedFile
from lsp_server.editor_request import EditorRequest, Purpose
from lsp_server.errors import NotSentError
from lsp_server.indentation import write_blanks
from lsp_server.no_suggestion import NoSuggestion, to_no_suggestion
from lsp_server.open_document import OpenDocument
from lsp_server.open_documents import OpenDocuments
from lsp_server.privacy.guard import Cleared, Guard
from lsp_server.project_text import ProjectText
from lsp_server.related import insert_declarations, write_comments

_MAX_WORD_BYTES = 300  # of declarations of the typed word, which stand above the line


class RequestBuilder:
    """Builds requests by the current rules. Clearing a request is the last step: nothing is added after it."""

    def __init__(self, documents: OpenDocuments, project: ProjectText, guard: Guard) -> None:
        self._documents = documents
        self._project = project
        self._guard = guard
        self._tenant = uuid.uuid4().hex  # the server shares nothing that it has cached with other editors

    async def build(
        self, document: OpenDocument, request: EditorRequest, purpose: Purpose
    ) -> Cleared[CompletionRequest] | NoSuggestion:
        """Returns what to send for a request in a document, or why nothing may be sent."""
        text, settings = document.text, request.settings
        others = await self._documents.find_others(document)
        found = self._documents.check(document)
        if found is not None:
            return found
        try:
            own_text = write_blanks(self._guard.redact_excerpt(request.excerpt), text.language)
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
                related=self._find_related(document),
                path=document.project.path,
            )
            uris = [each.text.file_uri for each in (document, *others)]
            return self._guard.clear(adapt(complete, purpose, request.confidence), uris)
        except NotSentError as error:
            return to_no_suggestion(error)

    def _find_related(self, document: OpenDocument) -> tuple[RelatedFile, ...]:
        served, files = self._documents.served, self._project.find_related(document)
        return files if served and served.reads_files else write_comments(files, document.text.language_id)


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
