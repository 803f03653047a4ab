"""Secrets at the edges of what is sent, and around the cursor."""

import pytest
from lsprotocol.types import Position, PositionEncodingKind, TextDocumentItem

from benchmarks.corpora.private_files import count_secret_bytes, iter_secrets
from lsp_server.privacy.excerpt import cut_excerpt
from lsp_server.privacy.redaction import PLACEHOLDER, Redactor
from lsp_server.settings import Settings
from lsp_server.text.context import Context, cut_context
from lsp_server.text.documents import Document

_SECRETS = {secret.form: secret for secret in iter_secrets()}
_TOKEN = _SECRETS["GitHub"].secret
_KEY = _SECRETS["RSA key block"]


@pytest.fixture(scope="module")
def redactor() -> Redactor:
    return Redactor()


def _redact(redactor: Redactor, text: str, at: int, max_bytes: int = 8192) -> Context | None:
    document = Document(TextDocumentItem("file:///a.py", "python", 0, text), PositionEncodingKind.Utf32)
    line_start = max(text.rfind("\n", 0, at), text.rfind("\r", 0, at)) + 1
    number = len(text[:line_start].replace("\r\n", "\n").replace("\r", "\n").split("\n")) - 1
    position = Position(number, at - line_start)
    context = cut_context(document, position, Settings(max_prefix_bytes=max_bytes, max_suffix_bytes=max_bytes))
    return cut_excerpt(document, position, context).redact(redactor)


def test_text_without_secrets_stays_as_it_is(redactor: Redactor) -> None:
    assert _redact(redactor, "a = 1\r\nb = 2\r\n", 9) == Context("a = 1\nb ", "= 2\n")


def test_secrets_on_both_sides_of_the_cursor_are_replaced(redactor: Redactor) -> None:
    text = f'a = "{_TOKEN}"\n\nb = "{_TOKEN}"\n'
    expected = Context(f'a = "{PLACEHOLDER}"\n', f'\nb = "{PLACEHOLDER}"\n')
    assert _redact(redactor, text, text.index("\n") + 1) == expected


def test_there_is_no_suggestion_in_a_secret_or_at_its_edge(redactor: Redactor) -> None:
    text = f'f("{_TOKEN}", x)\n'
    silent = [at for at in range(len(text)) if _redact(redactor, text, at) is None]
    assert silent == list(range(3, 4 + len(_TOKEN)))


def test_there_is_no_suggestion_in_a_key_block(redactor: Redactor) -> None:
    assert _redact(redactor, _KEY.text, _KEY.text.index("\n") + 20) is None


@pytest.mark.parametrize("form", ["GitHub", "RSA key block", "web token"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_no_part_of_a_secret_is_left_wherever_the_text_is_cut(form: str, line_end: str, redactor: Redactor) -> None:
    secret = _SECRETS[form]
    filler = "".join(f"value_{number} = {number}\n" for number in range(40))
    text = f"{filler}{secret.text}{filler}".replace("\n", line_end)
    secrets = secret.secret.split("\n")
    for at in range(0, len(text), 13):
        context = _redact(redactor, text, at, max_bytes=256)
        if context is not None:
            assert count_secret_bytes([context.prefix, context.suffix], secrets) == 0, at


def test_no_part_of_a_secret_is_left_where_a_long_line_is_cut(redactor: Redactor) -> None:
    text = "x = 1; " * 60 + f'a = "{_TOKEN}"; ' + "y = 2; " * 60
    for at in range(0, len(text), 3):
        context = _redact(redactor, text, at, max_bytes=256)
        if context is not None:
            assert count_secret_bytes([context.prefix, context.suffix], [_TOKEN], min_chars=6) == 0, at
