"""What the language server tells a model of the other files of a project. All of the product that `context` needs."""

from functools import cache
from pathlib import Path

from lsp_server.project.choice import choose_declarations
from lsp_server.project.declarations import Summary, summarize
from lsp_server.project.grammar import BY_EXTENSION, load_grammar
from lsp_server.project.index import Index

_MAX_BYTES = 2000


def tell(root: Path, path: str, text: str) -> str:
    """Returns what is told when the file at `path` in the project at `root` holds `text`, with the cursor at its end."""
    language, summary = BY_EXTENSION[Path(path).suffix], _summarize(path, text)
    told = choose_declarations(_index(root), path, language, summary, text, _MAX_BYTES)
    return "".join(f"{other}:\n{lines}" for other, lines in told.items())


@cache
def _index(root: Path) -> Index:
    index = Index()
    for path in sorted(root.rglob("*.*")):
        if path.suffix in BY_EXTENSION:
            relative = path.relative_to(root).as_posix()
            index.put(relative, "", _summarize(relative, path.read_text(errors="replace")))
    return index


def _summarize(path: str, text: str) -> Summary:
    return summarize(text.encode(), load_grammar(BY_EXTENSION[Path(path).suffix]))
