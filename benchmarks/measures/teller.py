"""What the language server tells a model of the other files of a project. All of the product that `context` needs."""

import os
from functools import cache
from pathlib import Path

from lsp_server.privacy.exclusion import Policy
from lsp_server.privacy.redaction import Redactor
from lsp_server.project.choice import choose_declarations
from lsp_server.project.declarations import summarize
from lsp_server.project.grammar import BY_EXTENSION, load_grammar
from lsp_server.project.index import Index
from lsp_server.project.indexer import Indexer, Job
from lsp_server.project_text import MAX_BYTES

_REDACTOR = Redactor()


def tell(root: Path, path: str, text: str) -> str:
    """Returns what is told when the file at `path` in the project at `root` holds `text`. The cursor is at its end."""
    language = BY_EXTENSION[Path(path).suffix]
    summary = summarize(text.encode(), load_grammar(language))
    told = choose_declarations(_read(root), path, language, summary, text, MAX_BYTES)
    return "".join(f"{other}:\n{_REDACTOR.redact(lines)}" for other, lines in told.items())


@cache
def _read(root: Path) -> Index:
    index = Index()
    Indexer(index, Policy(os.environ)).update(Job(str(root)))
    return index
