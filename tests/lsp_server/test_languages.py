"""One name for what editors call a language, and the endings of its files."""

import pytest

from lsp_server.languages import find_language, list_endings


@pytest.mark.parametrize(
    ("language_id", "language", "ending"),
    [
        *((name, "python", ".py") for name in ("python", "Python", "python3", "python.django", "python-ts", "py")),
        ("python-ts-mode", "python", ".py"),
        ("django.python", "django", ".py"),  # which of them comes first is not fixed
        ("typescriptreact", "typescriptreact", ".tsx"),
        ("typescript.tsx", "typescriptreact", ".ts"),
        ("shellscript", "bash", ".sh"),
        ("C++", "cpp", ".cc"),
        ("js2-mode", "javascript", ".js"),
        ("yaml.ansible", "yaml", ".yml"),
        ("Plain Text", "text", ".txt"),
        ("python2", "python2", ".py"),
        ("vue-html", "vue-html", ".vue"),
        ("vue-html", "vue-html", ".html"),
        ("htmldjango", "html+django", ".html"),
        ("cuda-cpp", "cuda-cpp", ".cu"),
        ("fortran-modern", "fortran-modern", ".f90"),
        ("objective-cpp", "objective-c++", ".mm"),
        ("handlebars", "handlebars", ".hbs"),
        ("go.mod", "gomod", ".mod"),
        ("dockercompose", "yaml", ".yml"),
        ("typescript-ts", "typescript", ".mts"),
        ("gleam?", "gleam?", ".gleam?"),
    ],
)
def test_the_identifiers_of_a_language_have_one_name(language_id: str, language: str, ending: str) -> None:
    assert find_language(language_id) == language
    assert ending in list_endings(language_id)
