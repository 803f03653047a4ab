"""What the language server tells a model of the other files of a project. All of the product that `context` needs."""

import os
from functools import cache
from pathlib import Path

from inference.protocol.completion import RelatedFile
from lsp_server.exclusion import Policy
from lsp_server.project.choice import MAX_BYTES, choose_declarations
from lsp_server.project.declarations import summarize
from lsp_server.project.grammar import BY_EXTENSION, load_grammar
from lsp_server.project.index import Index
from lsp_server.project.indexer import Indexer, Job


def tell(root: Path, path: str, text: str) -> str:
    """Returns what is told when the file at `path` in the project at `root` holds `text`. The cursor is at its end."""
    return "".join(f"{each.path}:\n{each.text}" for each in list_told(root, path, text, text))


def list_told(root: Path, path: str, text: str, before: str) -> list[RelatedFile]:
    """Returns what is told of each file. `before`: the part of the file's text that is before the cursor."""
    language = BY_EXTENSION[Path(path).suffix]
    summary = summarize(text.encode(), load_grammar(language))
    told = choose_declarations(read_project(root), path, language, summary, before, MAX_BYTES)
    return [RelatedFile(other, lines) for other, lines in told.items()]


@cache
def read_project(root: Path) -> Index:
    """Returns the index of a project, which must not change."""
    index = Index()
    Indexer(index, Policy(os.environ)).update(Job(str(root)))
    return index
