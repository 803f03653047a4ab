"""What requests tell of the project: what other files declare, renewed while nobody types.

It is chosen when a document is opened or saved, when files of its project have changed, and when nobody has typed in it
for some seconds. In between it stays, because the model would have to read all the text after it again.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

from pygls.uris import to_fs_path

from inference.protocol.completion import RelatedFile
from lsp_server.exclusion import Exclusions
from lsp_server.open_documents import OpenDocument, OpenDocuments, ProjectContext
from lsp_server.project.choice import choose_declarations, find_max_bytes
from lsp_server.project.declarations import summarize
from lsp_server.project.grammar import BY_LANGUAGE_ID, load_grammar
from lsp_server.project.index import Index
from lsp_server.project.project import Project

REST_S = 2.0
_MAX_CHARS = 300_000  # of a document; a longer one is not read


class ProjectText:
    """Reads open documents, and the indexes of the workspace folders, in a thread."""

    def __init__(
        self,
        documents: OpenDocuments,
        exclusions: Exclusions,
        index_dir: Path | None,
        on_change: Callable[[], None],
    ) -> None:
        """`index_dir`: where the indexes are kept; None: no folder is read. `on_change`: called if more is told."""
        self.projects: dict[str, Project] = {}  # by the URI of the folder
        self._documents = documents
        self._exclusions = exclusions
        self._index_dir = index_dir
        self._on_change = on_change
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

    def refresh(self, document: OpenDocument) -> None:
        """Reads a document, and chooses what to tell in it.

        If it is being read already, that is finished, and then it is read once more: an editor that saves with each key
        would otherwise never let it be finished.
        """
        if document.text.language in BY_LANGUAGE_ID and document.text.num_chars <= _MAX_CHARS:
            document.cancel_rest()
            document.is_due = True
            if document.reading is None or document.reading.done():
                document.reading = asyncio.create_task(self._refresh_while_due(document))

    def refresh_at_rest(self, document: OpenDocument) -> None:
        """Does the same once this has not been called for some seconds. Until then, what runs goes on."""
        document.cancel_rest()
        document.rest = asyncio.get_running_loop().call_later(REST_S, self.refresh, document)

    async def close(self) -> None:
        """Ends all processes."""
        self.configure([])
        await asyncio.gather(*self._closing)
        self._thread.shutdown(wait=False, cancel_futures=True)

    def refresh_all(self, folder: Path | None = None) -> None:
        """Reads all documents, or those in a folder, and chooses what to tell in them."""
        for document in self._documents.by_uri.values():
            if folder is None or Path(to_fs_path(document.text.file_uri) or "").is_relative_to(folder):
                self.refresh(document)

    async def _refresh_while_due(self, document: OpenDocument) -> None:
        while document.is_due:
            document.is_due = False
            await self._refresh(document)

    async def _refresh(self, document: OpenDocument) -> None:
        text = document.text
        if text.problem is not None:
            return
        end = text.find_edit_end()
        before = text.lines if end is None else text.lines[: end.line]
        read = partial(self._read, document, text.num_edits, "".join(text.lines), "".join(before))
        found = await asyncio.get_running_loop().run_in_executor(self._thread, read)
        await self._exclusions.ask(dict.fromkeys(found.uris, text.language_id))
        known = self._documents.list_related(document)
        document.project = found
        if self._documents.list_related(document) != known:
            self._on_change()

    def _read(self, document: OpenDocument, num_edits: int, text: str, before: str) -> ProjectContext:
        """Runs in the thread. `before`: the text before the last edit."""
        language, path = BY_LANGUAGE_ID[document.text.language], to_fs_path(document.text.file_uri)
        summary = document.project.summary
        if document.project.num_edits != num_edits:
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
