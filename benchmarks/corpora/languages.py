"""Source text in many languages: files on this machine, and generated text for languages with too few files."""

import hashlib
import heapq
import os
import random
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_NUM_CANDIDATES = 300  # files of a language that are read; those of an unsuitable size are skipped
_MIN_FILES = 5  # with fewer files, the text of the language is generated
_MIN_FILE_BYTES = 1_000
_MAX_FILE_BYTES = 400_000
_MAX_VISITED_FILES = 250_000  # under one root; a tree of a million files would take too long
_NUM_GENERATED = 60
_NUM_SNIPPETS = 40  # snippets in a generated file


@dataclass(frozen=True, slots=True)
class Language:
    """A language. Files are generated from `snippet`; each NAME, WORD and NUM in it is replaced by a random one."""

    name: str
    suffixes: tuple[str, ...]
    snippet: str


_LANGUAGES = (
    Language("python", (".py", ".pyi"), 'def NAME(WORD: int = NUM) -> str:\n    return f"{WORD!r} isn\'t NAME"\n\n\n'),
    Language("c", (".c", ".h"), "/* WORD */\nstatic int NAME(struct WORD *p)\n{\n\treturn p->WORD + 0xNUMU;\n}\n\n"),
    Language(
        "c++",
        (".hpp", ".cuh", ".cpp", ".cc"),
        "template <typename T>\nT NAME(const T& WORD) {\n  return std::WORD<T>(NUM);\n}\n\n",
    ),
    Language(
        "rust",
        (".rs",),
        "/// WORD of `NAME`.\npub fn NAME(&self, WORD: &'a str) -> Option<u64> {\n    WORD.NAME()?.WORD(NUM)\n}\n\n",
    ),
    Language(
        "javascript",
        (".js", ".mjs", ".cjs"),
        "const NAME = (WORD) => {\n  return WORD?.NAME ?? `${WORD}: NUM`; // it's WORD\n};\n\n",
    ),
    Language(
        "typescript",
        (".ts", ".tsx"),
        "export interface NAME<T> {\n  WORD?: Record<string, T>;\n  NAME(WORD: number): T | 'WORD';\n}\n\n",
    ),
    Language(
        "go",
        (".go",),
        "// NAME doesn't WORD.\nfunc (w *WORD) NAME(n int) error {\n\tif n != NUM {\n\t\treturn nil\n\t}\n}\n\n",
    ),
    Language(
        "lua",
        (".lua",),
        'local function NAME(WORD)\n  -- can\'t WORD\n  return WORD.NAME or { [NUM] = "WORD" }\nend\n\n',
    ),
    Language(
        "shell",
        (".sh", ".bash"),
        'NAME() {\n    local WORD="${1:-NUM}"\n    [ -n "$WORD" ] || echo \'no WORD\' >&2\n}\n\n',
    ),
    Language(
        "perl",
        (".pl", ".pm"),
        "sub NAME {\n    my ($self, %WORD) = @_;\n    return $WORD{NAME} =~ /^WORD\\s+(NUM)$/ ? $1 : undef;\n}\n\n",
    ),
    Language(
        "tcl",
        (".tcl",),
        "proc NAME {WORD {NAME NUM}} {\n    if {[info exists $WORD]} {\n\treturn [WORD $NAME]\n    }\n}\n\n",
    ),
    Language("html", (".html", ".htm"), "<div class=\"NAME WORD\">\n  <a href='#NAME'>WORD&nbsp;NUM</a>\n</div>\n"),
    Language("css", (".css",), ".NAME > .WORD:hover {\n  margin: NUMpx auto;\n  color: #NUM;\n}\n\n"),
    Language(
        "markdown",
        (".md", ".rst"),
        "## WORD NAME\n\nThe `NAME` isn't **WORD**; see [WORD](NAME.md#NUM).\n\n- WORD\n  1. NAME\n\n",
    ),
    Language("json", (".json",), '{\n  "NAME": [NUM, -NUM.5e3, null],\n  "WORD": {"NAME": "WORD\\n"}\n}\n'),
    Language("yaml", (".yaml", ".yml"), 'NAME:\n  - WORD: NUM\n    NAME: "WORD\'s"\n  # WORD\n'),
    Language("makefile", (".mk", ".mak", ".am"), "NAME: WORD.o $(NAME)\n\t@$(CC) -DWORD=NUM -o $@ $<\n\n"),
)
_SYLLABLES = (
    "ac", "ba", "con", "de", "er", "fi", "get", "in", "ize", "ko", "lo", "max", "ne", "or", "pro", "qua", "re", "set",
    "ta", "un", "ver", "wo", "x", "y", "zip",
)  # fmt: skip


def load_sources(seed: int) -> list[tuple[str, ...]]:
    """Returns the texts of each language. The same machine and seed give the same texts."""
    paths = _find_files()
    sources = []
    for language in _LANGUAGES:
        texts = tuple(text for path in paths[language.name] if (text := _read_text(path)) is not None)
        if len(texts) < _MIN_FILES:
            texts = _generate_texts(language, random.Random(f"{seed} {language.name}"))
        sources.append(texts)
    return sources


def _find_files() -> dict[str, list[Path]]:
    """Returns for each language the files whose paths have the lowest hashes: the same sample in every run."""
    by_suffix = {suffix: language.name for language in _LANGUAGES for suffix in language.suffixes}
    found: dict[str, set[str]] = {language.name: set() for language in _LANGUAGES}
    for root in _find_roots():
        for path in _iter_paths(root):
            name = by_suffix.get(os.path.splitext(path)[1])
            if name is not None:
                found[name].add(path)
    return {
        name: [Path(path) for path in heapq.nsmallest(_NUM_CANDIDATES, paths, _hash)] for name, paths in found.items()
    }


def _find_roots() -> list[Path]:
    """Returns the folders in which systems keep headers, packages, manuals and toolchains."""
    installed = [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib", "include")]
    toolchains = [Path.home() / name for name in (".rustup", ".cargo")]
    system = [Path(prefix, name) for prefix in ("/usr", "/usr/local") for name in ("include", "lib", "share")]
    return [root for root in dict.fromkeys([*installed, *toolchains, *system]) if root.is_dir()]


def _iter_paths(root: Path) -> Iterator[str]:
    num_visited = 0
    for folder, folders, names in os.walk(root):
        folders.sort()
        yield from (os.path.join(folder, name) for name in names)
        num_visited += len(names)
        if num_visited > _MAX_VISITED_FILES:
            return


def _hash(path: str) -> bytes:
    return hashlib.sha256(path.encode(errors="surrogateescape")).digest()


def _read_text(path: Path) -> str | None:
    """Returns the file's text with its own line ends; None if it is not UTF-8, too small or too large."""
    try:
        if not _MIN_FILE_BYTES <= path.stat().st_size <= _MAX_FILE_BYTES:
            return None
        return path.read_bytes().decode()
    except (OSError, UnicodeDecodeError):
        return None


def _generate_texts(language: Language, rng: random.Random) -> tuple[str, ...]:
    return tuple(
        "".join(_fill_snippet(language.snippet, rng) for _ in range(_NUM_SNIPPETS)) for _ in range(_NUM_GENERATED)
    )


def _fill_snippet(snippet: str, rng: random.Random) -> str:
    for mark in ("NAME", "WORD", "NUM"):
        head, *rest = snippet.split(mark)
        snippet = head + "".join(_make_word(mark, rng) + part for part in rest)
    return snippet


def _make_word(mark: str, rng: random.Random) -> str:
    if mark == "NUM":
        return str(rng.randrange(10 ** rng.randint(1, 6)))
    word = "".join(rng.choices(_SYLLABLES, k=rng.randint(1, 3)))
    if mark == "WORD":
        return word
    other = "".join(rng.choices(_SYLLABLES, k=2))
    return rng.choice((f"{word}_{other}", word + other.capitalize(), word.upper()))
