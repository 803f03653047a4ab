"""Builds what is sent to the completion server for a request of the editor."""

import enum
import uuid
from dataclasses import replace

from inference.protocol.completion import Chunks, CompletionRequest, Priority, RelatedFile
from lsp_server.editor_request import EditorRequest
from lsp_server.errors import NotSentError
from lsp_server.indentation import write_blanks
from lsp_server.no_suggestion import NoSuggestion, to_no_suggestion
from lsp_server.open_documents import OpenDocuments
from lsp_server.privacy.guard import Cleared
from lsp_server.project_text import ProjectText
from lsp_server.related import RelatedText, write_comments


class Purpose(enum.Enum):
    """What the answer is for."""

    BEST = enum.auto()  # the most likely text
    ALTERNATIVES = enum.auto()  # some other texts, drawn at random
    PREFETCH = enum.auto()  # no answer: the server caches the text before a key asks for it


_MAX_WORD_BYTES = 300  # of declarations of the typed word, which stand above the line


class RequestBuilder:
    """Builds requests by the current rules. Clearing a request is the last step: nothing is added after it."""

    def __init__(self, documents: OpenDocuments, project: ProjectText) -> None:
        self._documents = documents
        self._project = project
        self._related = RelatedText()
        self._tenant = uuid.uuid4().hex  # the server shares nothing that it has cached with other editors

    async def build(self, request: EditorRequest, purpose: Purpose) -> Cleared[CompletionRequest] | NoSuggestion:
        """Returns what to send, or why nothing may be sent."""
        document, guard = request.document, self._documents.guard
        others = await self._documents.find_others(document, self._project.find_project_context(document).uris)
        found = self._documents.check(document)
        if found is not None:
            return found
        try:
            own_text = write_blanks(guard.redact_excerpt(request.excerpt), document.language)
            self._related.max_bytes = min(_MAX_WORD_BYTES, request.settings.related_bytes)
            declared = [self._project.list_declarations(each) for each in others if each.file_uri != document.file_uri]
            prefix = self._related.insert_declarations(own_text, document, declared, request.is_expected)
            told = self._project.find_project_context(document)
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
                related=self._write(told.related, document.language_id),
                path=told.path,
            )
            uris = [each.file_uri for each in (document, *others)]
            return guard.clear(adapt(complete, purpose, request.confidence), uris)
        except NotSentError as error:
            return to_no_suggestion(error)

    def _write(self, files: tuple[RelatedFile, ...], language_id: str) -> tuple[RelatedFile, ...]:
        served = self._documents.served
        return files if served is not None and served.reads_files else write_comments(files, language_id)

    def forget(self, uri: str) -> None:
        """Forgets a document that was closed."""
        self._related.forget(uri)
        self._project.forget(uri)


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
