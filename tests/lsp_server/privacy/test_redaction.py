"""Secrets in lines and key blocks, at the edges of what is sent, and around the cursor."""

import contextlib
import json
import re
import time
import timeit
from collections.abc import Sequence
from functools import partial
from itertools import islice

import pytest
from lsprotocol.types import Position, PositionEncodingKind, TextDocumentItem

from lsp_server.context import Context, cut_excerpt
from lsp_server.documents import Document
from lsp_server.errors import InSecretError
from lsp_server.privacy.redaction import PLACEHOLDER, Redactor
from lsp_server.settings import Settings
from models.training.corpus import iter_held_out
from tests.support.secret_forms import HARMLESS, LONG, SECRETS, Secret, count_secret_bytes, fill
from tests.support.unseen_secrets import GITLEAKS, UNSEEN

_SECRETS = {secret.form: secret for secret in SECRETS}
_TOKEN = _SECRETS["GitHub"].secret
_LINE = f'a = "{_TOKEN}"\n'
_KEY = _SECRETS["RSA key block"]
_SHORT = [secret for secret in SECRETS if len(secret.secret) < 300]
_CUT = [each for each in _SHORT if each.form in ("GitHub", "web token") or each.form.startswith("- name")] + [
    _SECRETS[form] for form in ("RSA key block", "key without its lines", "key in a comment")
]
_ADVERSARIAL = (  # of what a long line may consist
    *("a", " ", "\\", '"', "[", "eyJ", "a1_", "pass", "x://:", "password = (", 'password = "', 'getpassword("'),
    *(
        'passwords = {"a": "b", ',
        "passwords:\n  ",
        "pass=",
        "token=",
        "pass='",
        "name: key value: ",
        "A" * 40 + "\n",
        "-----BEGIN " + "PRIVATE KEY-----\n",
    ),
)
_REDACTOR = Redactor()


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_a_known_form_is_replaced_and_the_code_around_it_stays(line_end: str) -> None:
    around = f"\udcff = 1{line_end}é = 2{line_end}"
    for secret in SECRETS:
        text = _REDACTOR.redact(around + secret.text.replace("\n", line_end) + around)
        assert count_secret_bytes([text], secret.secret.split("\n"), min_chars=4) == 0, secret.form
        assert (text[: len(around)], text[-len(around) :]) == (around, around), secret.form


@pytest.mark.parametrize(("forms", "floor"), [(GITLEAKS, 0.9), (UNSEEN, 0.85)], ids=["tokens", "places"])
def test_of_the_forms_that_no_rule_was_written_for_most_are_replaced(forms: Sequence[Secret], floor: float) -> None:
    sent = [each.form for each in forms if count_secret_bytes([_REDACTOR.redact(each.text)], [each.secret])]
    assert 1 - len(sent) / len(forms) >= floor


@pytest.mark.parametrize("secret", LONG, ids=lambda secret: secret.form)
def test_no_part_of_a_long_secret_is_sent_and_nothing_while_the_cursor_is_in_it(secret: Secret) -> None:
    assert _REDACTOR.redact(secret.text) == secret.template.replace("•", PLACEHOLDER)
    for at in range(len(secret.text) - 1000, len(secret.text) - 100, 100):
        with pytest.raises(InSecretError):
            _REDACTOR.redact_parts([secret.text[:at], secret.text[at:]], cursor=1)


def _quote_lines(text: str) -> str:
    """The lines as those of a cell in a file of a notebook, each a string."""
    lines = ",\n".join(json.dumps(line, ensure_ascii=False) for line in text.splitlines(keepends=True))
    return f'{{"source": [\n{lines}\n]}}\n'


def test_a_known_form_is_replaced_in_strings_with_escapes() -> None:
    for secret in _SHORT:
        text = _REDACTOR.redact(_quote_lines(secret.text))
        parts = [json.dumps(line, ensure_ascii=False)[1:-1] for line in secret.secret.split("\n")]
        assert count_secret_bytes([text], parts, min_chars=4) == 0, secret.form


def test_a_line_about_secrets_without_one_stays_in_strings_with_escapes() -> None:
    texts = [_quote_lines(f"import os\n{line}\nvalue = 1\n") for line in HARMLESS]
    assert [text for text in texts if _REDACTOR.redact(text) != text] == []


def test_the_replacement_says_nothing_of_the_secret() -> None:
    short, long = (f'password = "{"x7" * number}"' for number in (4, 40))
    assert _REDACTOR.redact(short) == _REDACTOR.redact(long) == f'password = "{PLACEHOLDER}"'


def test_a_line_about_secrets_without_one_stays() -> None:
    lines = [*HARMLESS, 'f(api_key="sk-...")', 'setenv("API_KEY", "test")']
    texts = [f"import os\n{line}\nvalue = 1\n" for line in lines]
    assert [text for text in texts if _REDACTOR.redact(text) != text] == []


def test_a_key_block_without_an_end_goes_as_far_as_it_looks_like_one() -> None:
    block = _KEY.text.partition("-----END")[0]
    text = _REDACTOR.redact(f"{block}\ndef f():\n    return 1\n")
    assert count_secret_bytes([text], [_KEY.secret]) == 0
    assert text.endswith(f"{PLACEHOLDER}\n\ndef f():\n    return 1\n")


def test_a_key_block_with_other_lines_in_it_is_replaced() -> None:
    begin, *body, end, quotes, _ = _KEY.text.split("\n")
    text = _REDACTOR.redact("\n".join([begin, body[0], "a remark: (the next lines ...)", *body, end, quotes]))
    assert count_secret_bytes([text], [_KEY.secret]) == 0


def test_code_between_the_names_of_the_lines_stays() -> None:
    lines = [f'if line == "-----{word} PRIVATE KEY-----":\n    found = True\n' for word in ("BEGIN", "END")]
    assert _REDACTOR.redact("".join(lines)) == "".join(lines)


def test_less_than_one_in_two_thousand_lines_of_ordinary_code_changes() -> None:
    files = list(iter_held_out())
    num_spans = sum(len(_REDACTOR.find_spans(file.text)) for file in files)
    assert num_spans / sum(file.text.count("\n") for file in files) < 1 / 2000


def test_what_looks_random_is_replaced_where_the_server_is_on_another_machine() -> None:
    text = f'x = "{fill("{A24}", "")}"\ny = "application/x-www-form-urlencoded"\n'
    assert _REDACTOR.redact(text) == text
    assert Redactor(is_strict=True).redact(text) == f'x = "{PLACEHOLDER}"\ny = "application/x-www-form-urlencoded"\n'


def test_a_secret_in_a_very_long_line_is_found() -> None:
    code = next(file.text for file in iter_held_out() if len(file.text) > 10_000)[:10_000].replace("\n", " ")
    for at in (0, 1023, 1024, 2040, 2048, 9_999):
        assert _REDACTOR.redact(f"{code[:at]} {_TOKEN} {code[at:]}") == f"{code[:at]} {PLACEHOLDER} {code[at:]}"


@pytest.mark.parametrize("piece", _ADVERSARIAL, ids=repr)
def test_the_time_grows_as_the_length_whatever_the_text_says(piece: str) -> None:
    texts = ["password = " + piece * (num_chars // len(piece)) for num_chars in (20_000, 80_000)]
    finds = [timeit.Timer(partial(_REDACTOR.find_spans, text), timer=time.thread_time) for text in texts]
    short, long = (min(find.repeat(2, 1)) for find in finds)
    assert long < 12 * short  # 16 times as long if it grew as the square


def _redact(text: str, at: int, context_tokens: int = 1024) -> Context | None:
    document = Document(TextDocumentItem("file:///a.py", "python", 0, text), PositionEncodingKind.Utf32)
    line_start = max(text.rfind("\n", 0, at), text.rfind("\r", 0, at)) + 1
    number = len(text[:line_start].replace("\r\n", "\n").replace("\r", "\n").split("\n")) - 1
    position = Position(number, at - line_start)
    settings = Settings(context=context_tokens)
    with contextlib.suppress(InSecretError):
        return _REDACTOR.redact_excerpt(cut_excerpt(document, position, settings))
    return None


@pytest.mark.parametrize(
    ("before", "after", "sent"),
    [
        ("a = 1\r\nb ", "= 2\r\n", Context("a = 1\nb ", "= 2\n")),  # there is none
        (_LINE, f"\n{_LINE}", Context(f'a = "{PLACEHOLDER}"\n', f'\na = "{PLACEHOLDER}"\n')),
        (_KEY.text[:50], _KEY.text[50:], None),  # there is no suggestion in a key
    ],
    ids=["none", "on both sides", "key"],
)
def test_secrets_on_both_sides_of_the_cursor_are_replaced(before: str, after: str, sent: Context | None) -> None:
    assert _redact(before + after, len(before)) == sent


def test_there_is_no_suggestion_in_a_secret_or_at_its_edge() -> None:
    text = f'f("{_TOKEN}", x)\n'
    silent = [at for at in range(len(text)) if _redact(text, at) is None]
    assert silent == list(range(3, 4 + len(_TOKEN)))


def test_while_a_secret_is_typed_its_beginning_is_sent_at_most() -> None:
    for each in _SHORT:
        start = each.text.index(each.secret)
        ends = range(start + 1, start + len(each.secret) + 1)
        sent = [end for end in ends if _redact(each.text[:end], end) is not None]
        assert len(sent) <= max(14, 0.75 * len(each.secret)), each.form


def test_while_ordinary_code_is_typed_everything_is_sent() -> None:
    lines = [line for line in HARMLESS if not re.search(r"\w{40}", line)]  # no digests
    lines += (line for file in islice(iter_held_out(), 20) for line in file.text.splitlines()[40:60])
    for typed in (line[:at] for line in lines for at in range(1, len(line) + 1)):
        for redactor in (_REDACTOR, Redactor(is_strict=True)):
            redactor.redact_parts([typed, ""], cursor=1)  # raises InSecretError


@pytest.mark.parametrize("secret", _CUT, ids=lambda secret: secret.form)
@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_no_part_of_a_secret_is_left_wherever_the_text_is_cut(secret: Secret, line_end: str) -> None:
    filler = "".join(f"value_{number} = {number}\n" for number in range(40))
    text = f"{filler}{secret.text}{filler}".replace("\n", line_end)
    secrets = secret.secret.split("\n")
    for at in range(0, len(text), 13):
        context = _redact(text, at, context_tokens=32)
        if context is not None:
            assert count_secret_bytes([context.prefix, context.suffix], secrets) == 0, at


def test_no_part_of_a_secret_is_left_where_a_long_line_is_cut() -> None:
    text = "x = 1; " * 60 + f'a = "{_TOKEN}"; ' + "y = 2; " * 60
    for at in range(0, len(text), 3):
        context = _redact(text, at, context_tokens=32)
        if context is not None:
            assert count_secret_bytes([context.prefix, context.suffix], [_TOKEN], min_chars=6) == 0, at
