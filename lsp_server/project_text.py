"""What requests tell of the project: what other files declare, renewed while nobody types.

It is chosen when a document is opened or saved, when files of its project have changed, and when nobody has typed in it
for some seconds. In between it stays, because the model would have to read all the text after it again.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from pygls.uris import to_fs_path

from inference.protocol.completion import RelatedFile
from lsp_server.documents import Document
from lsp_server.open_documents import OpenDocuments
from lsp_server.project.choice import choose_declarations, find_max_bytes
from lsp_server.project.declarations import Declaration, Summary, summarize
from lsp_server.project.grammar import BY_LANGUAGE_ID, load_grammar
from lsp_server.project.index import Index
from lsp_server.project.project import Project

REST_S = 2.0
_MAX_CHARS = 300_000  # of a document; a longer one is not read


@dataclass(frozen=True, slots=True)
class ProjectContext:
    """What was read for a document."""

    summary: Summary = field(default_factory=Summary)  # of the document itself
    path: str = ""  # from the workspace folder on; empty: it is in none
    related: tuple[RelatedFile, ...] = ()
    uris: tuple[str, ...] = ()  # of the files in `related`
    num_edits: int | None = None  # of the document, when it was summarized


class ProjectText:
    """Reads open documents, and the indexes of the workspace folders, in a thread."""

    def __init__(self, documents: OpenDocuments, index_dir: Path | None, on_change: Callable[[], None]) -> None:
        """`index_dir`: where the indexes are kept; None: no folder is read. `on_change`: called if more is told."""
        self.projects: dict[str, Project] = {}  # by the URI of the folder
        self._documents = documents
        self._index_dir = index_dir
        self._on_change = on_change
        self._told: dict[str, ProjectContext] = {}  # by the URI of the document
        self._refreshing: dict[str, asyncio.Task[None]] = {}
        self._due: set[str] = set()  # URIs of documents that are to be read, or to be read again
        self._resting: dict[str, asyncio.TimerHandle] = {}
        self._closing: list[asyncio.Task[None]] = []
        self._thread = ThreadPoolExecutor(1, "midtoken-project")

    def configure(self, folder_uris: Iterable[str]) -> None:
        """Sets the workspace's folders, and reads them."""
        found = {uri: path for uri in folder_uris if (path := to_fs_path(uri)) is not None}
        wanted = {uri: path for uri, path in found.items() if _is_project(Path(path))} if self._index_dir else {}
        for uri in self.projects.keys() - wanted.keys():
            self._closing.append(asyncio.create_task(self.projects.pop(uri).close()))
        for uri, path in wanted.items():
            if uri not in self.projects and self._index_dir is not None:
                self.projects[uri] = Project(Path(path), self._index_dir, partial(self.refresh_all, Path(path)))
            self.projects[uri].read(self._documents.settings.exclude)

    def note_changed(self, uris: Sequence[str]) -> None:
        """Has files read again that may have changed."""
        paths = [path for uri in uris if (path := to_fs_path(uri)) is not None]
        for project in self.projects.values():
            own = [path for path in paths if Path(path).is_relative_to(project.folder)]
            if own:
                project.read(self._documents.settings.exclude, own)

    def list_declarations(self, document: Document) -> Sequence[Declaration]:
        """Returns what a document declares, as far as it was read."""
        return self._told.get(document.uri, ProjectContext()).summary.declarations

    def find_project_context(self, document: Document) -> ProjectContext:
        """Returns what to tell in a document. A file that has been excluded since is left out."""
        told, exclusions = self._told.get(document.uri, ProjectContext()), self._documents.guard.exclusions
        kept = [each for each in zip(told.related, told.uris, strict=True) if not exclusions.is_excluded(each[1])]
        return ProjectContext(told.summary, told.path, tuple(file for file, _ in kept), tuple(uri for _, uri in kept))

    def refresh(self, document: Document) -> None:
        """Reads a document, and chooses what to tell in it.

        If it is being read already, that is finished, and then it is read once more: an editor that saves with each key
        would otherwise never let it be finished.
        """
        if document.language in BY_LANGUAGE_ID and document.num_chars <= _MAX_CHARS:
            self._cancel_rest(document.uri)
            self._due.add(document.uri)
            running = self._refreshing.get(document.uri)
            if running is None or running.done():
                self._refreshing[document.uri] = asyncio.create_task(self._refresh_while_due(document))

    def refresh_at_rest(self, document: Document) -> None:
        """Does the same once this has not been called for some seconds. Until then, what runs goes on."""
        self._cancel_rest(document.uri)
        self._resting[document.uri] = asyncio.get_running_loop().call_later(REST_S, self.refresh, document)

    def forget(self, uri: str) -> None:
        """Forgets a document that was closed."""
        self._cancel(uri)
        self._told.pop(uri, None)

    async def close(self) -> None:
        """Ends all processes."""
        self.configure([])
        await asyncio.gather(*self._closing)
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _cancel_rest(self, uri: str) -> None:
        timer = self._resting.pop(uri, None)
        if timer is not None:
            timer.cancel()

    def _cancel(self, uri: str) -> None:
        self._cancel_rest(uri)
        self._due.discard(uri)
        task = self._refreshing.pop(uri, None)
        if task is not None:
            task.cancel()

    def refresh_all(self, folder: Path | None = None) -> None:
        """Reads all documents, or those in a folder, and chooses what to tell in them."""
        for document in self._documents.by_uri.values():
            if folder is None or Path(to_fs_path(document.file_uri) or "").is_relative_to(folder):
                self.refresh(document)

    async def _refresh_while_due(self, document: Document) -> None:
        while document.uri in self._due:
            self._due.remove(document.uri)
            await self._refresh(document)

    async def _refresh(self, document: Document) -> None:
        if document.problem is not None:
            return
        end = document.find_edit_end()
        before = document.lines if end is None else document.lines[: end.line]
        read = partial(self._read, document, document.num_edits, "".join(document.lines), "".join(before))
        told = await asyncio.get_running_loop().run_in_executor(self._thread, read)
        await self._documents.guard.exclusions.ask(dict.fromkeys(told.uris, document.language_id))
        known = self.find_project_context(document)
        self._told[document.uri] = told
        if self.find_project_context(document).related != known.related:
            self._on_change()

    def _read(self, document: Document, num_edits: int, text: str, before: str) -> ProjectContext:
        """Runs in the thread. `before`: the text before the last edit."""
        language, path = BY_LANGUAGE_ID[document.language], to_fs_path(document.file_uri)
        known = self._told.get(document.uri, ProjectContext())
        summary = known.summary
        if known.num_edits != num_edits:
            summary = summarize(text.encode("utf-8", "replace"), load_grammar(language))
        for project in [*self.projects.values()]:
            if path is not None and Path(path).is_relative_to(project.folder) and project.database.exists():
                name = Path(path).relative_to(project.folder).as_posix()
                max_bytes = find_max_bytes(self._documents.settings.related_bytes)
                with suppress(sqlite3.Error), closing(Index(project.database)) as index:
                    chosen = choose_declarations(index, name, language, summary, before, max_bytes)
                    uris = tuple((project.folder / each).as_uri() for each in chosen)
                    related = tuple(RelatedFile(*each) for each in chosen.items())
                    return ProjectContext(summary, name, related, uris, num_edits)
        return ProjectContext(summary, num_edits=num_edits)


def _is_project(folder: Path) -> bool:
    """False for a whole disk and for a home folder, which editors take for a workspace if they find no other."""
    return folder not in (Path.home(), Path(folder.anchor))
