"""How a line of comment begins, by the language of the document."""

_BY_MARKER = {
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
_MARKERS = {language: marker for marker, languages in _BY_MARKER.items() for language in languages.split()}


def find_comment_marker(language_id: str) -> str | None:
    """Returns what begins a line of comment (LSP, TextDocumentItem.languageId); None if it is not known."""
    return _MARKERS.get(language_id.lower())
