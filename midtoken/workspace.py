"""The project that a file is in, as commands read it: a language server has the same index."""

import argparse
import os
import sqlite3
from contextlib import suppress
from pathlib import Path

from inference.errors import LaunchError
from inference.private_files import find_user_folder, make_private_folder
from inference.protocol.completion import RelatedFile
from lsp_server.exclusion import Policy
from lsp_server.project.choice import choose_declarations
from lsp_server.project.declarations import summarize
from lsp_server.project.grammar import BY_EXTENSION, load_grammar
from lsp_server.project.index import Index
from lsp_server.project.indexer import Indexer, Job, Report
from lsp_server.project.project import find_database


def find_index_dir(options: argparse.Namespace) -> Path | None:
    """Returns where indexes are kept; None without a home folder. `options`: those of `add_connection_arguments`."""
    with suppress(LaunchError):
        return (options.state_dir or find_user_folder("cache")) / "indexes"
    return None


def read_project(
    path: Path, index_dir: Path | None, exclude: tuple[str, ...] = ()
) -> tuple[Path, Index, Report] | None:
    """Reads the repository of Git that a file is in. Returns its folder, its index and what was read.

    Raises LaunchError if the index cannot be kept.
    """
    folder = next((each for each in path.absolute().parents if (each / ".git").exists()), None)
    if folder is None or index_dir is None:
        return None
    make_private_folder(index_dir)
    try:
        index = Index(find_database(index_dir, folder))
        return folder, index, Indexer(index, Policy(os.environ)).update(Job(str(folder), exclude))
    except sqlite3.Error as error:
        raise LaunchError(f"the index of {folder} cannot be kept in {index_dir}: {error}") from None


def choose_related(
    path: Path, prefix: str, suffix: str, folder: Path, index: Index, max_bytes: int
) -> tuple[RelatedFile, ...]:
    """Returns what a language server would tell of other files, for a model that was trained on several files."""
    language = BY_EXTENSION.get(path.suffix)
    if language is None:
        return ()
    name = path.absolute().relative_to(folder).as_posix()
    summary = summarize((prefix + suffix).encode(), load_grammar(language))
    chosen = choose_declarations(index, name, language, summary, prefix, max_bytes)
    return tuple(RelatedFile(*each) for each in chosen.items())
