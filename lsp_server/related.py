"""Declarations of other open files that the cursor's line uses, or is about to use, as comments above that line."""

from collections.abc import Iterable, Iterator, Sequence

import regex

from inference.protocol.completion import RelatedFile
from lsp_server.context import Context
from lsp_server.languages import find_language
from lsp_server.project.declarations import Declaration

_MAX_LINE_CHARS = 400  # of the line that are read; it may be one of megabytes
_WORD_AT_END = regex.compile(r"[^\W\d]\w*\Z")
_BRACKET = regex.compile(r"(?:([^\W\d]\w*)[ \t]*)?\(|\)")


def read_words(line_before: str) -> tuple[str, str]:
    """Returns the name that ends at the cursor, and the one whose arguments are being written; empty if there is none.

    A bracket in a string counts, too.
    """
    line_before = line_before[-_MAX_LINE_CHARS:]
    typed = _WORD_AT_END.search(line_before)
    open_calls: list[str] = []
    for match in _BRACKET.finditer(line_before):
        if match[0] == ")":
            del open_calls[-1:]
        else:
            open_calls.append(match[1] or "")
    return "" if typed is None else typed[0], open_calls[-1] if open_calls else ""


_BY_MARKER = {  # by what begins a line of comment, the identifiers of languages in LSP
    "#": "python ruby shellscript bash sh zsh fish perl r julia elixir makefile dockerfile yaml toml nix nim tcl "
    "coffeescript powershell cmake graphql",
    "//": "c cpp objective-c objective-cpp csharp cuda-cpp dart fsharp go groovy java javascript javascriptreact jsx "
    "kotlin less php rust scala scss solidity swift typescript typescriptreact tsx v verilog systemverilog zig proto "
    "proto3 jsonc haxe odin pug",
    "--": "lua sql haskell ada elm vhdl purescript agda lean idris plsql",
    "%": "latex tex erlang matlab prolog bibtex",
    ";": "clojure lisp commonlisp scheme racket asm nasm ini emacs-lisp elisp",
    "!": "fortran fortran90 fortran-modern",
    '"': "vim viml",
}
COMMENT_MARKERS = {
    find_language(language): marker for marker, languages in _BY_MARKER.items() for language in languages.split()
}


_MIN_TYPED_CHARS = 2
_MAX_LINES_KNOWN = 16  # whose comments are remembered


def insert_declarations(
    context: Context,
    language: str,
    others: Sequence[Sequence[Declaration]],
    known: dict[int, list[Declaration]],
    max_bytes: int,
    is_expected: bool = False,
) -> str:
    """Returns the prefix of `context` with declarations as comments right above the cursor's line.

    There the model uses them more than at the start of the prompt, and it costs least: the text above the line is the
    same with and without it, so the server has read it before. `benchmarks/editors.py` measures what it gains.

    A line gets its comments once: with each change, the line below them would be read again. Where the text around the
    cursor has a longer name that begins with the typed word, that one is meant more often: the others would hide it, so
    there are none.

    `others`: what each of the documents declares whose text may be used, those that matter most first. `known`: of this
    document, by a hash of the text above the line; this function adds to it. `is_expected`: nobody has typed this text,
    so its line may still get other comments.
    """
    marker = COMMENT_MARKERS.get(language)
    above = context.prefix[: len(context.prefix) - len(context.line_before)]
    if marker is None or max_bytes == 0:
        return context.prefix
    key = hash(above)
    chosen = [each for each in known.get(key, ()) if any(each in index for index in others)]
    chosen = chosen or _choose(context, others, max_bytes)
    if chosen and key not in known and not is_expected:
        known[key] = chosen
        for old in list(known)[:-_MAX_LINES_KNOWN]:
            del known[old]
    indentation = context.line_before[: len(context.line_before) - len(context.line_before.lstrip())]
    return above + _write(chosen, f"{indentation}{marker} ") + context.line_before


def _choose(context: Context, indexes: Sequence[Iterable[Declaration]], max_bytes: int) -> list[Declaration]:
    """Returns the declarations for which there is room. The most urgent one comes last, next to the line."""
    typed, called = read_words(context.line_before)
    if _continues_in(context, typed):
        typed = ""
    return _take(_find(typed, called, indexes), max_bytes)[::-1]


def write_comments(files: Sequence[RelatedFile], language_id: str) -> tuple[RelatedFile, ...]:
    """Returns the files as comments that begin with their paths, for a model that knows no format of files."""
    marker = COMMENT_MARKERS.get(find_language(language_id), "#")
    texts = (f"{each.path}:\n{each.text}" for each in files)
    comments = ("".join(f"{marker} {line}\n" for line in text.splitlines()) for text in texts)
    return tuple(RelatedFile(each.path, text) for each, text in zip(files, comments, strict=True))


def _find(typed: str, called: str, indexes: Sequence[Iterable[Declaration]]) -> Iterator[Declaration]:
    """Yields declarations, the most urgent first: of names that begin with the typed word, the shortest first.

    One letter begins too many names.
    """
    if len(typed) >= _MIN_TYPED_CHARS:
        found = [each for index in indexes for each in index if each.name.startswith(typed)]
        yield from sorted(found, key=lambda declaration: len(declaration.name))
    if called:
        yield from (each for index in indexes for each in index if each.name == called)


def _write(declarations: Iterable[Declaration], beginning: str) -> str:
    """Returns the declarations as lines that begin with `beginning`."""
    return "".join(f"{beginning}{each.text}\n" for each in declarations)


def _continues_in(context: Context, typed: str) -> bool:
    """True if a longer word in the text around the cursor begins with the typed word."""
    longer = regex.compile(rf"\b{regex.escape(typed)}\w")
    before = context.prefix[: len(context.prefix) - len(typed)]
    return typed != "" and any(longer.search(text) is not None for text in (before, context.suffix))


def _take(found: Iterable[Declaration], max_bytes: int) -> list[Declaration]:
    """Returns the first declarations that have at most `max_bytes` together."""
    taken: dict[Declaration, None] = {}
    for declaration in found:
        if declaration not in taken:
            max_bytes -= _num_bytes(declaration)
            if max_bytes < 0:
                break
            taken[declaration] = None
    return list(taken)


def _num_bytes(declaration: Declaration) -> int:
    return len(declaration.text.encode("utf-8", "replace")) + 4
