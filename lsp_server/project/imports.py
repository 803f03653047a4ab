"""Which files of the project an import names, as its language finds them."""

import posixpath
import re
from collections.abc import Iterable
from itertools import takewhile
from pathlib import PurePosixPath

from lsp_server.project.declarations import Import
from lsp_server.project.index import Index

_SCRIPT = (".ts", ".tsx", ".d.ts", ".js", ".jsx", ".mjs", "/index.ts", "/index.tsx", "/index.d.ts", "/index.js")
_ENDINGS = {
    "python": (".py", "/__init__.py", ".pyi"),
    "javascript": _SCRIPT,
    "typescript": _SCRIPT,
    "tsx": _SCRIPT,
    "rust": (".rs", "/mod.rs"),
    "java": (".java",),
    "c": ("",),
    "cpp": ("",),
}
_ROOTS = {"lib", "main", "mod"}  # the files of Rust that stand for their folder


def find_imported(index: Index, path: str, imports: Iterable[Import], language: str) -> dict[str, dict[str, None]]:
    """Returns the files that a file imports from, in its order, and the names that it imports from each.

    The name "" means all. A name that the file only passes on is found where it is declared.
    """
    found: dict[str, dict[str, None]] = {}
    for each in imports:
        files, name = _resolve(index, path, each, language)
        for target in (_find_declaring(index, file, name) for file in files):
            if target != path:
                found.setdefault(target, {})[name] = None
    return found


def _find_declaring(index: Index, file: str, name: str) -> str:
    """Returns the file itself; if it only passes the name on, the nearest one that declares it."""
    paths = index.find_declared(name) if name else []
    return file if file in paths else max(paths, key=lambda each: _count_shared(each, file), default=file)


def list_package(index: Index, path: str, language: str) -> list[str]:
    """Returns the other files whose names a file has without importing them: those of its package."""
    if language not in ("go", "java"):
        return []
    return [each for each in index.list_folder(posixpath.dirname(path) or ".") if each != path]


def _resolve(index: Index, path: str, wanted: Import, language: str) -> tuple[list[str], str]:
    """Returns the files that an import names, and the name that is imported from them; "" for all."""
    if language == "go":
        return _resolve_go(index, path, wanted.module), ""
    if language == "rust":
        return _resolve_rust(index, path, wanted.module)
    stems = {"python": _list_python, "java": _list_java}.get(language, _list_relative)(path, wanted)
    for stem, name in stems:
        file = _find_file(index, path, stem, language)
        if file is not None:
            return [file], name
    return [], ""


def _find_file(index: Index, path: str, stem: str, language: str) -> str | None:
    """`stem`: from the folder of the project on, if it begins with `/`; otherwise the end of a path."""
    endings = _ENDINGS[language]
    if stem.startswith("/"):
        return index.find_first([(stem + ending).removeprefix("/") for ending in endings])
    found = [each for ending in endings for each in index.find_files((stem + ending).removeprefix("/"))]
    return max(found, key=lambda each: _count_shared(each, path), default=None)


def _count_shared(path: str, other: str) -> int:
    """The number of folders that two paths share."""
    pairs = zip(path.split("/"), other.split("/"), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _list_python(path: str, wanted: Import) -> list[tuple[str, str]]:
    module = wanted.module.lstrip(".")
    level = len(wanted.module) - len(module)
    stem = module.replace(".", "/")
    if level:
        folders = PurePosixPath("/", path).parents
        stem = posixpath.join(str(folders[min(level, len(folders)) - 1]), stem).rstrip("/")
    return [(f"{stem}/{wanted.name}", ""), (stem, wanted.name)] if wanted.name else [(stem, "")]


def _list_java(_: str, wanted: Import) -> list[tuple[str, str]]:
    stem = wanted.module.replace(".", "/")
    return [(stem, posixpath.basename(stem)), (posixpath.dirname(stem), posixpath.basename(stem))]


def _list_relative(path: str, wanted: Import) -> list[tuple[str, str]]:
    module = wanted.module.strip('"<>')
    is_script = not module.endswith((".h", ".hpp", ".hh", ".hxx"))
    stem = re.sub(r"\.[mc]?jsx?$", "", module) if is_script else module
    beside = posixpath.normpath(posixpath.join("/", posixpath.dirname(path), stem))
    if module.startswith(".") and is_script:
        return [(beside, wanted.name)]
    return [(beside, wanted.name), (stem.lstrip("@~/"), wanted.name)]


def _resolve_go(index: Index, path: str, module: str) -> list[str]:
    """The files of the package that ends with the most parts of this path. A package of Go itself names no host.

    Only `go.mod` knows the path of the module's own folder, so nothing is found for that.
    """
    parts = module.split("/")
    above = [str(each) for each in PurePosixPath("/", path).parents]  # one of them is the module's folder
    for start in range(1, len(parts) if "." in parts[0] else 0):
        for folder in above:
            files = index.list_folder(posixpath.join(folder, *parts[start:]).lstrip("/") or ".")
            if files:
                return [each for each in files if not each.endswith("_test.go")]
    return []


def _resolve_rust(index: Index, path: str, use: str) -> tuple[list[str], str]:
    *parts, name = use.split("::")
    base = _find_rust_base(path, parts)
    parts = [each for each in parts if each not in ("crate", "self", "super")]
    for end in range(len(parts) + 1, -1, -1):
        stem = "/".join([base, *[*parts, name][:end]])
        rest = [*parts, name][end:]
        file = index.find_first(
            [stem + ".rs", stem + "/mod.rs", *([f"{base}/lib.rs", f"{base}/main.rs"] if end == 0 else [])]
        )
        if file is not None:
            return [file], "" if not rest or rest[0] == "*" else rest[0]
    return [], ""


def _find_rust_base(path: str, parts: list[str]) -> str:
    folder, file = posixpath.split(path)
    if parts[:1] == ["crate"]:
        return path[: path.rfind("src/") + 3] if "src/" in path else folder
    own = folder if posixpath.splitext(file)[0] in _ROOTS else posixpath.splitext(path)[0]
    if parts[:1] == ["super"]:
        return posixpath.normpath(posixpath.join(own, *[".."] * parts.count("super")))
    return own
