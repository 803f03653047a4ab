"""Graphs with their constants in a cache folder, so that a model is converted once and then mapped from a file.

An entry is a folder whose name is a digest of the graph and of the places, sizes and times of the files that its
constants are computed from. It holds the graph and the constants. An entry is written to a folder of another name,
which is then renamed. An entry that is not whole is replaced. Nothing in the cache folder is needed: if it cannot be
used, a model is converted to a temporary folder.
"""

import contextlib
import hashlib
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import numpy as np

from inference.model.onnx.graph import CONSTANTS_VERSION, Graph
from inference.model.onnx.session import VERSION
from inference.private_files import is_own

GRAPH_NAME = "decoder.onnx"
CONSTANTS_NAME = "constants.bin"

_GROUP_AND_OTHERS_WRITE = 0o022
_REPLACED_NAME = "replaced"
_DRAFT_PREFIX = "draft-"
_MAX_UNUSED_SECONDS = 60 * 86_400
_MAX_DRAFT_SECONDS = 86_400

_log = logging.getLogger(__name__)


class GraphStore:
    """The graphs in a cache folder."""

    def __init__(self, folder: Path) -> None:
        """Makes the folder if it is missing. Raises OSError if this user cannot use it alone."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
        if not is_own(status) or status.st_mode & _GROUP_AND_OTHERS_WRITE:
            raise PermissionError(f"other users may write to {folder}")
        self._folder = folder

    def find(self, graph: Graph, key: str) -> Path | None:
        """The graph's file in the entry of this key; None if there is no such entry, or it is not whole."""
        entry, last = self._folder / key, graph.groups[-1][0][-1]
        with contextlib.suppress(OSError):
            num_bytes = (entry / CONSTANTS_NAME).stat().st_size
            if num_bytes == last.offset + last.num_bytes and (entry / GRAPH_NAME).read_bytes() == _serialize(graph):
                os.utime(entry)
                return entry / GRAPH_NAME
        return None

    @contextlib.contextmanager
    def add(self, graph: Graph, key: str) -> Iterator[Path]:
        """Yields a new folder with the graph. It becomes the entry of this key, unless the block raises.

        Raises OSError.
        """
        self._remove_old()
        draft = Path(tempfile.mkdtemp(prefix=_DRAFT_PREFIX, dir=self._folder))
        try:
            with (draft / CONSTANTS_NAME).open("wb") as file:
                for constant, value in chain.from_iterable(
                    zip(each, read(), strict=True) for each, read in graph.groups
                ):
                    file.seek(constant.offset)
                    file.write(value.reshape(-1).view(np.uint8).data)
                os.fsync(file.fileno())  # what is renamed later is whole, even if the power fails
            (draft / GRAPH_NAME).write_bytes(_serialize(graph))
            yield draft
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)  # files that are mapped stay readable
            raise
        self.publish(draft, key)

    def publish(self, draft: Path, key: str) -> None:
        """Makes a draft the entry of this key, in place of what is there. The draft's files stay readable."""
        entry = self._folder / key
        try:
            if entry.exists():  # damaged, or another process was as fast
                entry.rename(draft / _REPLACED_NAME)
            draft.rename(entry)
            shutil.rmtree(entry / _REPLACED_NAME, ignore_errors=True)
        except OSError as error:  # among others if another process does the same at this moment
            _log.warning("the converted model cannot be kept: %s", error)
            shutil.rmtree(draft, ignore_errors=True)  # files that are mapped stay readable

    def _remove_old(self) -> None:
        """Removes what was not used for long: models that were changed, and drafts of processes that were killed."""
        now = time.time()
        for path in self._folder.iterdir():
            try:
                age = now - path.stat().st_mtime
            except OSError:  # another process has removed it
                continue
            is_draft = path.name.startswith(_DRAFT_PREFIX)
            if path.is_dir() and age > (_MAX_DRAFT_SECONDS if is_draft else _MAX_UNUSED_SECONDS):
                shutil.rmtree(path, ignore_errors=True)


def compute_key(graph: Graph, weight_files: Iterable[Path]) -> str:
    """The name of the entry of a graph whose constants are computed from these files."""
    stats = {path: path.stat() for path in sorted(path.resolve() for path in weight_files)}
    files = [(str(path), each.st_size, each.st_mtime_ns, each.st_ctime_ns) for path, each in stats.items()]
    digest = hashlib.sha256(_serialize(graph))
    digest.update(repr((VERSION, CONSTANTS_VERSION, files)).encode())
    return digest.hexdigest()


def _serialize(graph: Graph) -> bytes:
    data: bytes = graph.model.SerializeToString(deterministic=True)
    return data
