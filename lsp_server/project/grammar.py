"""The languages whose files are indexed: a grammar of tree-sitter each, and what its queries capture.

A grammar's package brings a query for tags. `queries/*.scm` adds fields, constants and imports, which it lacks.
"""

from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from importlib.resources import files

from tree_sitter import Language, Query

# The extensions of each language, the packages with its queries for tags, and the files in `queries`.
_LANGUAGES = {
    "python": ((".py", ".pyi"), ("python",), ("python",)),
    "javascript": ((".js", ".mjs", ".cjs", ".jsx"), ("javascript",), ("script", "javascript")),
    "typescript": ((".ts", ".mts", ".cts"), ("javascript", "typescript"), ("script", "typescript")),
    "tsx": ((".tsx",), ("javascript", "typescript"), ("script", "typescript")),
    "go": ((".go",), ("go",), ("go",)),
    "rust": ((".rs",), ("rust",), ("rust",)),
    "java": ((".java",), ("java",), ("java",)),
    "c": ((".c", ".h"), ("c",), ("c",)),
    "cpp": ((".cc", ".cpp", ".cxx", ".hh", ".hpp", ".hxx"), ("c", "cpp"), ("c",)),
}
# The identifiers in LSP, where they differ.
_LANGUAGE_IDS = {"javascriptreact": "javascript", "typescriptreact": "tsx"}
BY_LANGUAGE_ID = {name: name for name in _LANGUAGES} | _LANGUAGE_IDS
BY_EXTENSION = {extension: name for name, (extensions, *_) in _LANGUAGES.items() for extension in extensions}


@dataclass(frozen=True)
class Grammar:
    """A grammar of tree-sitter with its query. Use `load_grammar`."""

    name: str
    language: Language

    @cached_property
    def query(self) -> Query:
        """Finds declarations and imports. Patterns that find only references are switched off."""
        _, packages, names = _LANGUAGES[self.name]
        tags = [_read_query(f"tree_sitter_{each}", "tags") for each in packages]
        source = "\n".join([*tags, *(_read_query(__package__, each) for each in names)]).encode()
        query = Query(self.language, source.decode())
        for number in range(query.pattern_count):
            pattern = source[query.start_byte_for_pattern(number) : query.end_byte_for_pattern(number)]
            if b"@reference" in pattern or not any(each in pattern for each in (b"@definition", *_IMPORTS)):
                query.disable_pattern(number)
        return query


_IMPORTS = (b"@module", b"@use", b"@mod")


@cache
def load_grammar(name: str) -> Grammar:
    """Loads the grammar of a language in `BY_EXTENSION`."""
    package = import_module(f"tree_sitter_{'typescript' if name == 'tsx' else name}")
    function = f"language_{name}" if name in ("typescript", "tsx") else "language"
    return Grammar(name, Language(getattr(package, function)()))


def _read_query(package: str, name: str) -> str:
    return (files(package) / f"queries/{name}.scm").read_text(encoding="utf-8")
