"""What requests tell of the project: what other files declare, renewed while nobody types.

It is chosen when a document is opened or saved, when files of its project have changed, and when nobody has typed in it
for some seconds. In between it stays, because the model would have to read all the text after it again.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from pygls.uris import to_fs_path

from inference.protocol.completion import RelatedFile
from lsp_server.documents import Document
from lsp_server.open_documents import OpenDocuments
from lsp_server.project.choice import choose_declarations
from lsp_server.project.declarations import Declaration, Summary, summarize
from lsp_server.project.grammar import BY_LANGUAGE_ID, load_grammar
from lsp_server.project.index import Index
from lsp_server.project.project import Project

REST_S = 3.0
_MAX_BYTES = 2400
_MAX_CHARS = 300_000  # of a document; of a longer one nothing is read


@dataclass(frozen=True, slots=True)
class _Told:
    """What was read for one document."""

    summary: Summary = field(default_factory=Summary)
    related: tuple[RelatedFile, ...] = ()
    uris: tuple[str, ...] = ()  # of the files in `related`


class ProjectText:
    """Reads open documents and the indexes of workspace folders in a thread."""

    def __init__(self, documents: OpenDocuments, index_dir: Path | None, on_change: Callable[[], None]) -> None:
        """`index_dir`: where the indexes are kept; None: no folder is read. `on_change`: called if more is told."""
        self.projects: dict[str, Project] = {}  # by the URI of the folder
        self._documents = documents
        self._index_dir = index_dir
        self._on_change = on_change
        self._told: dict[str, _Told] = {}  # by the URI of the document
        self._refreshing: dict[str, asyncio.Task[None]] = {}
        self._thread = ThreadPoolExecutor(1, "midtoken-project")

    def configure(self, folder_uris: Iterable[str], exclude: Sequence[str]) -> None:
        """Sets the workspace's folders, and reads them. `exclude`: that setting."""
        wanted = {uri: path for uri in folder_uris if (path := to_fs_path(uri)) is not None} if self._index_dir else {}
        for uri in self.projects.keys() - wanted.keys():
            self.projects.pop(uri).close()
        for uri, path in wanted.items():
            if uri not in self.projects and self._index_dir is not None:
                self.projects[uri] = Project(Path(path), self._index_dir, self._refresh_all)
            self.projects[uri].read(exclude)

    def note_changed(self, uris: Iterable[str], exclude: Sequence[str]) -> None:
        """Has changed files read again."""
        for folder_uri, project in self.projects.items():
            paths = [path for uri in uris if uri.startswith(f"{folder_uri}/") and (path := to_fs_path(uri)) is not None]
            if paths:
                project.read(exclude, paths)

    def list_declarations(self, document: Document) -> Sequence[Declaration]:
        """Returns what a document declares, as far as it was read."""
        return self._told.get(document.uri, _Told()).summary.declarations

    def list_related(self, document: Document) -> tuple[RelatedFile, ...]:
        """Returns what to tell of other files. A file that has been excluded since is left out."""
        told = self._told.get(document.uri, _Told())
        rulings = self._documents.guard.rulings
        return tuple(each for each, uri in zip(told.related, told.uris, strict=True) if not rulings.is_excluded(uri))

    def refresh(self, document: Document, after_s: float = 0.0) -> None:
        """Reads a document, and chooses what to tell in it. `after_s`: without another call in between."""
        if document.language_id in BY_LANGUAGE_ID and document.num_chars <= _MAX_CHARS:
            self._cancel(document.uri)
            self._refreshing[document.uri] = asyncio.create_task(self._refresh(document, after_s))

    def forget(self, uri: str) -> None:
        """Forgets a document that was closed."""
        self._cancel(uri)
        self._told.pop(uri, None)

    def close(self) -> None:
        """Ends all processes."""
        self.configure([], [])
        for uri in [*self._refreshing]:
            self._cancel(uri)
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _cancel(self, uri: str) -> None:
        task = self._refreshing.pop(uri, None)
        if task is not None:
            task.cancel()

    def _refresh_all(self) -> None:
        for document in self._documents.by_uri.values():
            self.refresh(document)

    async def _refresh(self, document: Document, after_s: float) -> None:
        await asyncio.sleep(after_s)
        if document.problem is not None:
            return
        end = document.find_edit_end()
        lines = document.lines if end is None else document.lines[: end.line]
        read = partial(self._read, document, "".join(document.lines), "".join(lines))
        summary, chosen = await asyncio.get_running_loop().run_in_executor(self._thread, read)
        languages = dict.fromkeys(chosen, document.language_id)
        rulings, redactor = self._documents.guard.rulings, self._documents.guard.redactor
        await rulings.wait_until_known(languages)
        allowed = {uri: file for uri, file in chosen.items() if not rulings.is_excluded(uri)}
        related = tuple(RelatedFile(file.path, redactor.redact(file.text)) for file in allowed.values())
        before = self._told.get(document.uri, _Told())
        self._told[document.uri] = _Told(summary, related, tuple(allowed))
        if related != before.related:
            self._on_change()

    def _read(self, document: Document, text: str, before: str) -> tuple[Summary, dict[str, RelatedFile]]:
        """Runs in the thread. Returns the document's own declarations, and what to tell of others by their URIs."""
        language = BY_LANGUAGE_ID[document.language_id]
        summary = summarize(text.encode("utf-8", "replace"), load_grammar(language))
        path = to_fs_path(document.file_uri)
        for project in self.projects.values():
            if path is not None and Path(path).is_relative_to(project.folder) and project.database.exists():
                name = Path(path).relative_to(project.folder).as_posix()
                with closing(Index(project.database)) as index:
                    chosen = choose_declarations(index, name, language, summary, before, _MAX_BYTES)
                return summary, {(project.folder / each).as_uri(): RelatedFile(each, chosen[each]) for each in chosen}
        return summary, {}
