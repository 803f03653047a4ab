"""Suggestions for the open documents, and the prefetch of the next one. It speaks no LSP, and reports to `Status`."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from lsprotocol.types import Position, Range

from inference.errors import MidtokenError
from inference.protocol.completion import Chunks, CompletionRequest, Priority
from lsp_server.backend import Connect, Connector
from lsp_server.context import move_window
from lsp_server.documents import ContentChange, Document, num_units
from lsp_server.errors import EditorError, NotSentError, to_midtoken_error
from lsp_server.guard import Cleared, Guard
from lsp_server.indentation import write_blanks
from lsp_server.items import Insertion, Suggestion, fit_all
from lsp_server.model_offer import ModelOffer, OfferedModel
from lsp_server.no_suggestion import (
    SUPERSEDED,
    NoSuggestion,
    Reason,
    find_disturbance,
    find_obstacle,
    to_no_suggestion,
)
from lsp_server.other_files import find_folder_unit, find_path, find_project_unit, list_pieces
from lsp_server.session import EditorRequest, Purpose, Session, build_editor_request, read_texts
from lsp_server.settings import ReadSettings, Settings
from lsp_server.status import Status

_PAUSE_S = 0.15  # keys that follow each other are mostly closer
_CURSOR_REST_S = 0.05  # the cursor is moved on much sooner while a key is held
_MAX_ITEMS = 3
_MAX_OTHERS = 20  # other documents of which a piece may be sent, those that were opened or edited last
_MIN_CONTEXT_TOKENS = 2048  # in a smaller window, other files take more room than they are worth
_OWN_WAIT_S, _OTHERS_WAIT_S = 0.5, 0.025  # that a key waits for the rules of its document, and of others
# Alternatives are drawn at random.
_NUM_DRAWN = 4  # of which some are equal
_TEMPERATURE = 0.8  # so that they differ, and still make sense
_SEED = 7  # the same cursor has the same alternatives
_DEADLINE_MS = 1500  # a user who cycles through suggestions does not wait longer


@dataclass(frozen=True, slots=True)
class Expectation:
    """What the next key will probably find: a document in which `text` has replaced `span`, and the cursor after it."""

    session: Session
    span: Range
    text: str = ""


class Assistant:
    """Has the open documents, the connection to the completion server and the prefetch.

    It applies the settings, the rules on what may be sent and the model's languages to the documents and their
    requests. While the user does nothing, one place at a time is prefetched: the one that was expected last, after a
    short time without any event. The server then caches the text around it.
    """

    def __init__(
        self,
        connect: Connect,
        languages: tuple[str, ...] | None,
        guard: Guard,
        list_folders: Callable[[], Iterable[str]],
        status: Status,
        offered: OfferedModel | None = None,
    ) -> None:
        """`languages`: those of the bundled model; None: any. `list_folders`: the URIs of those of the workspace.

        `offered`: the model for documents in other languages; None where the model is not the user's to choose.
        """
        self.status = status
        self.guard = guard
        self.connector = Connector(connect, status, self._note_connected)
        self.sessions: dict[str, Session] = {}  # by URI; the one that was opened or edited last is last
        self._list_folders = list_folders
        self._languages = languages
        self._find_default: Callable[[], str | None] = offered.find_default if offered else lambda: None
        self._default = self._find_default()  # the model that is used if no setting names one; None: the bundled one
        self._model_offer = None if offered is None else ModelOffer(offered, status, self._follow_default)
        self._chosen = ReadSettings(Settings(), ())
        self._are_settings_known = False
        self._expected: Expectation | None = None
        self._prefetch: asyncio.Task[None] | None = None

    @property
    def _settings(self) -> Settings:
        """Those that were chosen, with a context that the connected server can take."""
        chosen = self._chosen.settings
        served = self.connector.description
        limits = (chosen.context, None if served is None else served.context_tokens)
        return replace(chosen, context=min((each for each in limits if each is not None), default=None))

    def configure(self, read: ReadSettings, are_known: bool) -> None:
        """Sets the settings. Nothing is sent until they were known once: the editor was asked for its own."""
        old, new = self._chosen.settings, read.settings
        self._chosen, self._are_settings_known = read, self._are_settings_known or are_known
        if (new.model, new.context) != (old.model, old.context):
            self.connector.restart(new)
        for problem in read.problems:
            self.status.show_error(problem)
        self.configure_guard()
        for session in self.sessions.values():
            self._check_soon(session)

    def configure_guard(self) -> None:
        """Has the settings and the workspace's folders hold for what is sent."""
        if self._are_settings_known:
            self.guard.configure(self._settings, list(self._list_folders()), self._chosen.refusal)

    def open(self, document: Document) -> None:
        """Adds a document. If the rules allow suggestions in it, the completion server is started."""
        self._follow_default()
        self.close(document.uri)
        session = self.sessions[document.uri] = Session(document, self._build, self.connector, self.status)
        self._check_soon(session)
        # In a thread, because other files may be on a slow disk, and no key waits for them.
        session.folder_unit = asyncio.ensure_future(asyncio.to_thread(find_folder_unit, document.file_uri))
        start = Position(0, 0)
        self._expect(Expectation(session, Range(start, start)))

    def edit(self, uri: str, changes: Sequence[ContentChange]) -> None:
        """Applies the edits of one notification. The user is told of edits that cannot be applied."""
        try:
            session = self._find(uri)
            session.edit(changes)
            self.sessions[uri] = self.sessions.pop(uri)
            self._check(session)
            end = session.document.find_edit_end()
            self._expect(None if end is None else Expectation(session, Range(end, end)))
        except EditorError as error:
            self.status.failed(error)

    def note_cursor(self, uri: str, selection: Range) -> None:
        """Notes that the user moved the cursor. The next key would replace the selection."""
        with contextlib.suppress(EditorError):
            session = self._find(uri)
            # After an edit that ended here, the key's own request follows.
            if session.document.last_edit is None or not session.document.was_edited_at(selection.end):
                self._expect(Expectation(session, selection), _CURSOR_REST_S)

    def mark_out_of_sync(self, uri: str | None) -> None:
        """Marks the text of a document as unknown after an edit that cannot be read; of all documents without a URI."""
        for session in [each for each in self.sessions.values() if uri in (None, each.document.uri)]:
            session.note_edit()
            if session.document.problem is None:
                self.status.failed(session.document.lose_sync("the editor sent an edit that cannot be read"))
            self._check(session)

    def close(self, uri: str) -> None:
        """Removes a document and cancels its generation. Does nothing if the document is not open."""
        session = self.sessions.pop(uri, None)
        if session is not None:
            if self._expected is not None and self._expected.session is session:
                self._expect(None)
            session.close()
            self._tell(session, None)  # it may be opened again in another language

    async def close_all(self) -> None:
        """Cancels all generations and closes the connection to the completion server."""
        for uri in list(self.sessions):
            self.close(uri)
        if self._model_offer is not None:
            await self._model_offer.close()
        self.guard.exclusions.close()
        await self.connector.close()

    async def suggest(self, uri: str, position: Position, is_invoked: bool = False) -> Suggestion | NoSuggestion:
        """Returns what to suggest at a position, or why there is no suggestion. Reports a failure to the user.

        `is_invoked`: the user asked for a suggestion, and gets up to three.
        """
        try:
            self._follow_default()
            found = await self._suggest(self._find(uri), position, is_invoked)
        except Exception as error:  # the outermost handler: a defect must fail only this request
            failure = to_midtoken_error(error)
            self.status.failed(failure)
            found = to_no_suggestion(failure)
        if isinstance(found, NoSuggestion):
            self.status.not_suggested(found, is_invoked)
        return found

    def _find(self, uri: str) -> Session:
        try:
            return self.sessions[uri]
        except KeyError:
            raise EditorError("the editor refers to a document that is not open") from None

    async def _suggest(self, session: Session, position: Position, is_invoked: bool) -> Suggestion | NoSuggestion:
        self._expect(None)
        number = session.supersede()
        await self._read_rules([session], _OWN_WAIT_S)
        found = self._check(session)
        if found is not None and found.reason is Reason.UNKNOWN_RULES:
            self._tell(session, found)
            self._check_soon(session)
            await session.wait_for(number, self._read_rules([session]))
            found = self._check(session)
        if not session.is_newest(number):
            return SUPERSEDED
        if found is not None:
            return found
        request = build_editor_request(session.document, position, self._settings, is_invoked)
        if not is_invoked:
            found = find_disturbance(session.document, session.was_pasted, request.place, request.context)
        if found is not None:
            return found
        best = await session.complete(request)
        others = await session.sample_alternatives(request) if is_invoked and isinstance(best, str) else []
        if isinstance(best, NoSuggestion) or isinstance(others, NoSuggestion):
            return best if isinstance(best, NoSuggestion) else SUPERSEDED
        return self._offer(session, request, [best, *others])

    def _offer(self, session: Session, request: EditorRequest, texts: list[str]) -> Suggestion | NoSuggestion:
        """Returns what is left of the texts to insert. The first one is the best."""
        opened, unit = [each.document for each in self.sessions.values()], session.folder_unit
        folder_unit = unit.result() if unit is not None and unit.done() else None
        find_unit = partial(find_project_unit, session.document, opened, folder_unit)
        insertions = fit_all(texts, request.context, find_unit)[:_MAX_ITEMS]
        best = insertions[0] if insertions else Insertion("")
        start = request.place.position
        end = Position(start.line, start.character + num_units(best.replaced_after))
        self._expect(Expectation(session, Range(start, end), best.text))
        if not insertions:
            return NoSuggestion(Reason.FILTERED if texts[0].strip() else Reason.NOTHING)
        session.offered = frozenset(request.context.line_before + each.text for each in insertions)
        return Suggestion(request.place, request.context, insertions)

    def _expect(self, expected: Expectation | None, after_s: float = _PAUSE_S) -> None:
        """Cancels what runs, and prefetches a place after a pause. None: nothing, since the place is not known."""
        if self._prefetch is not None:
            self._prefetch.cancel()  # the server keeps what it has cached
        self._expected = expected
        self._prefetch = None if expected is None else asyncio.create_task(self._prefetch_soon(expected, after_s))

    async def _prefetch_soon(self, expected: Expectation, after_s: float) -> None:
        """Sends what the next key will send. The same rules apply as for a key."""
        await asyncio.sleep(after_s)
        session, settings = expected.session, self._settings
        if not settings.prefetch:
            return
        with contextlib.suppress(MidtokenError):  # the next key reports it
            await self._read_rules([session])
            move_window(session.document, expected.span.start, settings, is_waited_for=False)
            edited, position = session.document.with_edit(expected.span, expected.text)
            request = build_editor_request(edited, position, settings)
            cleared = await self._build(session, request, Purpose.PREFETCH)
            if not isinstance(cleared, NoSuggestion) and (backend := await self.connector.get()) is not None:
                await read_texts(backend, cleared)

    def _note_connected(self) -> None:
        """What the server says of itself holds for the documents from now on."""
        for session in self.sessions.values():
            self._check(session)
        self._expect(self._expected)

    async def _read_rules(self, sessions: Iterable[Session], wait_s: float | None = None) -> None:
        """Waits until the rules say whether text of some documents may be sent; those older than a second anew."""
        languages = {each.document.file_uri: each.document.language_id for each in sessions}
        await self.guard.exclusions.ask(languages, wait_s)

    def _check(self, session: Session) -> NoSuggestion | None:
        """Returns why a document gets no suggestions; None if it gets them. Tells the user if that has changed."""
        found = self._find_obstacle(session)
        if found is None or found.reason not in (Reason.UNKNOWN_RULES, Reason.SUPERSEDED):
            self._tell(session, found)
        return found

    def _check_soon(self, session: Session) -> None:
        """Checks a document in the background, as soon as the rules for it are known."""
        if session.check is None or session.check.done():
            session.check = asyncio.create_task(self._check_when_known(session))

    async def _check_when_known(self, session: Session) -> None:
        await self._read_rules([session])
        if self._check(session) is None:
            self.connector.start()

    def _tell(self, session: Session, found: NoSuggestion | None) -> None:
        """Tells the user whether a document gets suggestions, if that has changed."""
        if found != session.off:
            session.off = found
            is_asked = self._model_offer is not None and self._may_help(found) and self._model_offer.make()
            self.status.checked(session.document.uri, found, is_asked)

    def _may_help(self, found: NoSuggestion | None) -> bool:
        """True if a document gets no suggestions because of what the bundled model knows."""
        is_asked = self._is_bundled and self._languages is not None and self._chosen.settings.languages is None
        return is_asked and found is not None and found.reason is Reason.OTHER_LANGUAGE

    @property
    def _is_bundled(self) -> bool:
        return self._default is None and self._chosen.settings.model is None

    def _follow_default(self) -> None:
        """Uses the model that the user has made the default, here, in another editor or in a terminal."""
        if (default := self._find_default()) == self._default:
            return
        self._default = default
        if self._chosen.settings.model is None:
            self.connector.restart(self._chosen.settings)
        for session in self.sessions.values():
            self._check_soon(session)

    def _find_obstacle(self, session: Session) -> NoSuggestion | None:
        document = session.document
        if self.sessions.get(document.uri) is not session:
            return SUPERSEDED
        languages = self._languages if self._is_bundled else None
        if (served := self.connector.description) is not None:
            languages = served.languages or None
        exclusion = self.guard.exclusions.find_exclusion(document.file_uri)
        return find_obstacle(document, self._settings, languages, exclusion)

    async def _find_others(self, session: Session) -> list[Session]:
        """Returns the other documents of which pieces may be sent with a text of this one, the newest first."""
        served = self.connector.description
        if served is None or not served.reads_files or (self._settings.context or 0) < _MIN_CONTEXT_TOKENS:
            return []
        own = session.document
        others = [
            each
            for each in reversed(self.sessions.values())
            if each.document.language == own.language and each.document.file_uri != own.file_uri
        ][:_MAX_OTHERS]
        await self._read_rules(others, _OTHERS_WAIT_S)
        return [each for each in others if self._find_obstacle(each) is None]

    async def _build(
        self, session: Session, request: EditorRequest, purpose: Purpose
    ) -> Cleared[CompletionRequest] | NoSuggestion:
        """Returns what to send for a request in a document, or why nothing may be sent.

        Clearing the request is the last step: nothing is added after it.
        """
        document, settings, folders = session.document, request.settings, [*self._list_folders()]
        await self._read_rules([session], _OWN_WAIT_S)  # the request may have waited for the start
        others = [each.document for each in await self._find_others(session)]
        found = self._check(session)
        if found is not None:
            return found
        try:
            own_text = write_blanks(self.guard.redact_context(request.context), document.language)
            complete = CompletionRequest(
                prefix=own_text.prefix,
                suffix=own_text.suffix,
                max_tokens=settings.max_tokens,
                healing=settings.healing,
                extent=settings.extent,
                deadline_ms=settings.deadline_ms,
                chunks=Chunks.LINES,
                tenant="editor",  # the guard makes random names of these
                document=session.name,
                related=list_pieces(others, folders, settings.related_bytes, self.guard),
                path=find_path(document.file_uri, folders),
                near_first=True,
            )
            uris = [each.file_uri for each in (document, *others)]
            return self.guard.clear(adapt(complete, purpose, request.confidence), uris)
        except NotSentError as error:
            return to_no_suggestion(error)


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
