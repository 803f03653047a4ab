"""Which files of a project an import names, by language."""

from collections.abc import Mapping

import pytest

from lsp_server.project.declarations import summarize
from lsp_server.project.grammar import BY_EXTENSION, load_grammar
from lsp_server.project.imports import find_imported, list_package
from lsp_server.project.index import Index


def _index(files: Mapping[str, str]) -> Index:
    index = Index()
    for path, text in files.items():
        index.put(path, "", summarize(text.encode(), load_grammar(BY_EXTENSION["." + path.rpartition(".")[2]])))
    return index


def _find(files: Mapping[str, str], path: str) -> dict[str, set[str]]:
    index = _index(files)
    found = find_imported(index, path, index.list_imports(path), BY_EXTENSION["." + path.rpartition(".")[2]])
    return {target: set(names) for target, names in found.items()}


_CASES: dict[str, tuple[Mapping[str, str], dict[str, set[str]]]] = {
    "python: from a module": (
        {"pkg/a.py": "from pkg.b import one\n", "pkg/b.py": "def one(): ...\n"},
        {"pkg/b.py": {"one"}},
    ),
    "python: relative": (
        {"src/pkg/sub/a.py": "from ..b import one as uno\n", "src/pkg/b.py": "one = 1\n"},
        {"src/pkg/b.py": {"one"}},
    ),
    "python: a module of the package": (
        {"pkg/a.py": "from . import b\nimport pkg.c\n", "pkg/b.py": "", "pkg/c.py": ""},
        {"pkg/b.py": {""}, "pkg/c.py": {""}},
    ),
    "python: passed on": (
        {"a.py": "from pkg import One\n", "pkg/__init__.py": "from .b import One\n", "pkg/b.py": "class One: ...\n"},
        {"pkg/b.py": {"One"}},
    ),
    "python: outside": ({"a.py": "import os\nfrom json import loads\n", "json/x.py": ""}, {}),
    "typescript: beside": (
        {"src/a.ts": "import { One } from './b'\n", "src/b.ts": "export class One {}\n"},
        {"src/b.ts": {"One"}},
    ),
    "typescript: a default": (
        {"src/a.ts": "import one from './b.js'\n", "src/b.ts": "export default function one() {}\n"},
        {"src/b.ts": {"one"}},
    ),
    "typescript: passed on by an index": (
        {
            "src/a.ts": "import { One } from './lib'\n",
            "src/lib/index.ts": "export * from './b'\n",
            "src/lib/b.ts": "export interface One {}\n",
        },
        {"src/lib/b.ts": {"One"}},
    ),
    "typescript: a namespace": ({"a.ts": "import * as b from './b'\n", "b.ts": ""}, {"b.ts": {""}}),
    "go: a package of the module": (
        {"a/a.go": 'package a\nimport "example.com/me/mod/b"\n', "b/b.go": "package b\n", "b/b_test.go": "package b\n"},
        {"b/b.go": {""}},
    ),
    "go: of Go itself": ({"a.go": 'package a\nimport "net/http"\n', "http/b.go": "package http\n"}, {}),
    "rust: of the crate, in braces": (
        {
            "src/a.rs": "use crate::{b::One, c::{self, Two}};\n",
            "src/b.rs": "pub struct One;\n",
            "src/c/mod.rs": "pub fn Two() {}\n",
        },
        {"src/b.rs": {"One"}, "src/c/mod.rs": {"self", "Two"}},
    ),
    "rust: the module above": (
        {"src/a/b.rs": "use super::One;\n", "src/a.rs": "", "src/a/mod.rs": "pub struct One;\n"},
        {"src/a/mod.rs": {"One"}},
    ),
    "rust: a module of its own": ({"src/lib.rs": "mod b;\n", "src/b.rs": ""}, {"src/b.rs": {""}}),
    "java: a class": (
        {"src/org/a/A.java": "import org.b.One;\nclass A {}\n", "src/org/b/One.java": "class One {}\n"},
        {"src/org/b/One.java": {"One"}},
    ),
    "c: a header beside": ({"a.c": '#include "b.h"\n', "b.h": "int one(void);\n"}, {"b.h": {""}}),
    "c++: a header in a folder of headers": (
        {"src/a.cpp": "#include <me/b.hpp>\n", "include/me/b.hpp": "class One {};\n"},
        {"include/me/b.hpp": {""}},
    ),
}


@pytest.mark.parametrize("case", _CASES)
def test_an_import_names_the_file_that_declares_the_name(case: str) -> None:
    files, expected = _CASES[case]
    assert _find(files, next(iter(files))) == expected


@pytest.mark.parametrize(("ending", "has_package"), [("go", True), ("java", True), ("py", False)])
def test_files_of_a_package_need_no_import_in_some_languages(ending: str, has_package: bool) -> None:
    index = _index({f"a/one.{ending}": "", f"a/two.{ending}": "", f"a/b/three.{ending}": ""})
    found = list_package(index, f"a/one.{ending}", BY_EXTENSION[f".{ending}"])
    assert found == ([f"a/two.{ending}"] if has_package else [])
