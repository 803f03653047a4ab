"""The language of a document, which each editor names in its own way: `python.django`, `python-ts`, `Python`."""

import re
from collections.abc import Iterator
from functools import cache

from pygments.lexers import get_all_lexers

# Identifiers of LSP and of editors that pygments does not know, and the name that stands for their language.
_NAMES = {
    **{"jsx": "javascriptreact", "javascript.jsx": "javascriptreact", "javascriptreact": "javascriptreact"},
    **{"tsx": "typescriptreact", "typescript.tsx": "typescriptreact", "typescriptreact": "typescriptreact"},
    **{"shellscript": "bash", "plaintext": "text", "jsonc": "json", "commonlisp": "common-lisp", "viml": "vim"},
    **{"ipython": "python", "objective-cpp": "objective-c++", "objcpp": "objective-c++", "eruby": "erb"},
    **{name: name for name in ("dotenv", "terraform-vars", "handlebars", "razor", "gomod")},
    **{"aspnetcorerazor": "razor", "go.mod": "gomod", "dockercompose": "yaml"},
}
_ENDINGS = {
    **{"javascriptreact": (".jsx",), "typescriptreact": (".tsx",), "dotenv": (".env",), "text": (".txt",)},
    "typescript": (".ts", ".mts", ".cts"),
    **{"terraform-vars": (".tfvars",), "handlebars": (".hbs",), "razor": (".cshtml",), "gomod": (".mod",)},
}
_VARIANT = re.compile(r"(?:[-_ ](?:ts|mode|base|treesitter)|[\d.]+)+$")


@cache
def find_language(language_id: str) -> str:
    """Returns one name for all the identifiers of a language; the identifier itself if the language is not known."""
    return next(_iter_languages(language_id.lower()), language_id.lower())


@cache
def list_endings(language_id: str) -> tuple[str, ...]:
    """Returns the endings that files of the language have, and its identifier in case that it is one."""
    names = [language_id.lower(), *_iter_languages(language_id.lower())]
    if not any(map(_read_lexers()[1].get, names)):  # of several words: vue-html, html+django
        names += [part for name in names for part in re.split(r"[^a-z0-9#]+", name) if part]
    names += [each for name in names for each in (*_iter_languages(name), *name.split("."))]
    known = [ending for each in names for ending in (f".{each}", *_read_lexers()[1].get(each, ()))]
    return tuple(dict.fromkeys([f".{language_id}", *known]))


def _iter_languages(name: str) -> Iterator[str]:
    """Yields the languages that an identifier may name: all of it first, then the parts that Vim joins by a dot."""
    aliases = _read_lexers()[0]
    for part in (name, *re.split(r"[.\s]+", name)):
        for each in (part, _VARIANT.sub("", part)):
            if found := _NAMES.get(each) or aliases.get(each):
                yield found


@cache
def _read_lexers() -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
    """Returns the first alias of each language by all its aliases, and the endings of its files by that alias."""
    lexers = [(aliases, patterns) for _, aliases, patterns, _ in get_all_lexers(plugins=False) if aliases]
    names = {alias.lower(): aliases[0] for aliases, _ in lexers for alias in aliases}
    endings = {
        aliases[0]: tuple(each[1:] for each in patterns if each.startswith("*.") and each[2:].isalnum())
        for aliases, patterns in lexers
    }
    return names, endings | _ENDINGS
