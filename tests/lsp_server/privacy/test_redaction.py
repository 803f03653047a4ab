"""Secrets in lines and key blocks, at the edges of what is sent, and around the cursor."""

import pytest
from lsprotocol.types import Position, PositionEncodingKind, TextDocumentItem

from lsp_server.context import Context, cut_context
from lsp_server.documents import Document
from lsp_server.privacy.redaction import PLACEHOLDER, Redactor, cut_excerpt
from lsp_server.settings import Settings
from models.training.corpus import iter_held_out
from tests.support.private_files import SECRETS, Secret, count_secret_bytes

_SECRETS = {secret.form: secret for secret in SECRETS}
_TOKEN = _SECRETS["GitHub"].secret
_KEY = _SECRETS["RSA key block"]


@pytest.fixture(scope="module")
def redactor() -> Redactor:
    return Redactor()


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"], ids=ascii)
@pytest.mark.parametrize("secret", SECRETS, ids=lambda secret: secret.form)
def test_a_known_form_is_replaced_and_the_code_around_it_stays(
    secret: Secret, line_end: str, redactor: Redactor
) -> None:
    around = f"value = 1{line_end}" * 40
    text = redactor.redact(around + secret.text.replace("\n", line_end) + around)
    assert count_secret_bytes([text], secret.secret.split("\n"), min_chars=4) == 0
    assert text.startswith(around)
    assert text.endswith(around)
    assert text.count('"') == secret.text.count('"') or "key in strings" in secret.form


def test_the_replacement_says_nothing_of_the_secret(redactor: Redactor) -> None:
    short, long = (f'password = "{"x7" * number}"' for number in (4, 40))
    assert redactor.redact(short) == redactor.redact(long) == f'password = "{PLACEHOLDER}"'


def test_a_key_block_without_an_end_goes_as_far_as_it_looks_like_one(redactor: Redactor) -> None:
    block = _KEY.text.partition("-----END")[0]
    text = redactor.redact(f"{block}\ndef f():\n    return 1\n")
    assert text == f'key = """{PLACEHOLDER}\n\ndef f():\n    return 1\n'


def test_a_key_block_with_other_lines_in_it_is_replaced_up_to_its_end(redactor: Redactor) -> None:
    begin, *body, end, quotes, _ = _KEY.text.split("\n")
    text = redactor.redact("\n".join([begin, body[0], "a remark: (the next lines ...)", *body, end, quotes]))
    assert text == f'key = """{PLACEHOLDER}\n"""'


def test_code_between_the_names_of_the_lines_stays(redactor: Redactor) -> None:
    lines = [f'if line == "-----{word} PRIVATE KEY-----":\n    found = True\n' for word in ("BEGIN", "END")]
    text = redactor.redact("".join(lines))
    assert text.count("found = True") == 2


def test_ordinary_code_stays_as_it_is(redactor: Redactor) -> None:
    changed = [file.path for file in iter_held_out() if redactor.redact(file.text) != file.text]
    assert changed == []


def test_a_secret_in_a_very_long_line_is_found(redactor: Redactor) -> None:
    code = next(file.text for file in iter_held_out() if len(file.text) > 10_000)[:10_000].replace("\n", " ")
    token = next(secret for secret in SECRETS if secret.form == "GitHub").secret
    for at in (0, 1023, 1024, 2040, 2048, 9_999):
        assert redactor.redact(f"{code[:at]} {token} {code[at:]}") == f"{code[:at]} {PLACEHOLDER} {code[at:]}"


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
