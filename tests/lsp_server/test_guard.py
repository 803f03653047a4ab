"""What a request may say, whatever it was built of."""

import contextlib
import dataclasses
import json
import time
import timeit
from functools import partial
from typing import Any

import pytest
from lsprotocol.types import Position, TextDocumentItem

from inference.protocol.characters import CharacterRequest
from inference.protocol.completion import CompletionRequest, RelatedFile
from lsp_server.context import Context
from lsp_server.documents import Document
from lsp_server.errors import InSecretError
from lsp_server.guard import PLACEHOLDER, Guard, find_secrets, redact, redact_context, redact_parts
from lsp_server.session import build_editor_request
from lsp_server.settings import Settings
from models.training.corpus import iter_held_out
from tests.support.secret_forms import HARMLESS, SECRETS, Secret, count_secret_bytes


@pytest.mark.parametrize("kind", [CompletionRequest, CharacterRequest])
def test_each_text_of_a_request_is_cleared_and_each_other_field_stays(kind: type[Any]) -> None:
    """A new field that is a text is not forgotten."""
    secret = SECRETS[0].secret
    line = f'key = "{secret}"\n'
    values = {"str": line, "tuple[str, ...]": (line,), "bytes": line.encode()}
    values |= {"related": (RelatedFile(line, line),)}
    types = {each.name: getattr(each.type, "__name__", str(each.type)) for each in dataclasses.fields(kind)}
    types |= {name: kind for name, kind in (("stop", "tuple[str, ...]"), ("related", "related")) if name in types}
    texts = {name: values[type] for name, type in types.items() if type in values}
    assert len(texts) == {CompletionRequest: 7, CharacterRequest: 3}[kind]
    request = kind(**{**({"text": b""} if kind is CharacterRequest else {}), **texts})
    cleared = Guard(is_remote=True).clear(request, ()).value
    assert secret not in repr(cleared)
    assert {name for name in types if getattr(request, name) != getattr(cleared, name)} == texts.keys()


def test_on_this_machine_only_names_are_replaced() -> None:
    request = CompletionRequest(f'key = "{SECRETS[0].secret}"\n', tenant="me", document="a.py", stop=("x",))
    cleared = Guard().clear(request, ()).value
    assert dataclasses.replace(cleared, tenant="me", document="a.py") == request
    assert not {cleared.tenant, cleared.document} & {"me", "a.py"}


def test_a_request_whose_cursor_is_in_a_secret_is_refused() -> None:
    with pytest.raises(InSecretError):
        Guard(is_remote=True).clear(CompletionRequest(f"key = '{SECRETS[0].secret}", suffix="'\n"), ())


@pytest.mark.parametrize("stop", ["•", '•"\n', "x•", "\n\n"])
def test_a_stop_string_does_not_say_what_was_replaced_in_its_prompt(stop: str) -> None:
    secret = "qZ7kL" + "mw2Xp0v"
    for prefix, suffix in ((f'password = "{secret}"\nx', ""), ("x", f'\npassword = "{secret}"\n')):
        request = CompletionRequest(prefix, suffix=suffix, stop=(stop.replace("•", secret), secret[:9]))
        assert Guard(is_remote=True).clear(request, ()).value.stop == (() if "•" in stop else (stop,))


@pytest.mark.parametrize("stop", ['= "•', '•"\n', "•"])
@pytest.mark.parametrize("part", [slice(4), slice(-4, None), slice(2, 9)], ids=str)
def test_a_stop_string_does_not_say_a_part_of_what_was_replaced(stop: str, part: slice) -> None:
    secret = "qZ7kL" + "mw2Xp0v"
    request = CompletionRequest(text := f'password = "{secret}"\nx', stop=(stop.replace("•", secret[part]),))
    if request.stop[0] in text:
        assert Guard(is_remote=True).clear(request, ()).value.stop == ()


_SECRETS = {secret.form: secret for secret in SECRETS}
_TOKEN = _SECRETS["GitHub"].secret
_LINE = f'a = "{_TOKEN}"\n'
_KEY = _SECRETS["RSA key block"]
_ADVERSARIAL = (  # of what a long line may consist
    *("a", " ", "\\", '"', "[", "eyJ", "a1_", "x://:", "password = (", 'password = "', "pass=", "token='"),
    *('passwords = {"a": "b", ', "passwords:\n  ", "A" * 40 + "\n", "-----BEGIN " + "PRIVATE KEY-----\n"),
)


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_a_known_form_is_replaced_and_the_code_around_it_stays(line_end: str) -> None:
    around = f"\udcff = 1{line_end}é = 2{line_end}"
    for secret in SECRETS:
        text = redact(around + secret.text.replace("\n", line_end) + around)
        assert count_secret_bytes([text], secret.secret.split("\n"), min_chars=4) == 0, secret.form
        assert (text[: len(around)], text[-len(around) :]) == (around, around), secret.form


def test_a_value_is_replaced_in_strings_with_escapes() -> None:
    line = json.dumps('password = "hunter2correct"\n')
    assert redact(line) == line.replace("hunter2correct", PLACEHOLDER)


def test_the_replacement_says_nothing_of_the_secret() -> None:
    short, long = (f'password = "{"x7" * number}"' for number in (4, 40))
    assert redact(short) == redact(long) == f'password = "{PLACEHOLDER}"'


def test_a_line_about_secrets_without_one_stays() -> None:
    lines = [*HARMLESS, 'f(api_key="sk-...")', 'setenv("API_KEY", "test")']
    texts = [f"import os\n{line}\nvalue = 1\n" for line in lines]
    assert [text for text in texts if redact(text) != text] == []


def test_a_key_block_goes_as_far_as_it_looks_like_one() -> None:
    begin, *body, end, quotes, _ = _KEY.text.split("\n")
    with_a_remark = "\n".join([begin, body[0], "a remark: (the next lines ...)", *body, end, quotes])
    without_an_end = "\n".join([begin, *body]) + "\ndef f():\n    return 1\n"
    texts = [redact(text) for text in (with_a_remark, without_an_end)]
    assert count_secret_bytes(texts, [_KEY.secret]) == 0
    assert texts[1].endswith(f"{PLACEHOLDER}\ndef f():\n    return 1\n")


def test_code_between_the_names_of_the_lines_stays() -> None:
    lines = [f'if line == "-----{word} PRIVATE KEY-----":\n    found = True\n' for word in ("BEGIN", "END")]
    assert redact("".join(lines)) == "".join(lines)


def test_less_than_one_in_two_thousand_lines_of_ordinary_code_changes() -> None:
    files = list(iter_held_out())
    num_spans = sum(len(find_secrets(file.text)) for file in files)
    assert num_spans / sum(file.text.count("\n") for file in files) < 1 / 2000


def test_a_secret_in_a_very_long_line_is_found() -> None:
    code = next(file.text for file in iter_held_out() if len(file.text) > 10_000)[:10_000].replace("\n", " ")
    for at in (0, 1023, 1024, 2040, 2048, 9_999):
        assert redact(f"{code[:at]} {_TOKEN} {code[at:]}") == f"{code[:at]} {PLACEHOLDER} {code[at:]}"


@pytest.mark.parametrize("piece", _ADVERSARIAL, ids=repr)
def test_the_time_grows_as_the_length_whatever_the_text_says(piece: str) -> None:
    texts = ["password = " + piece * (num_chars // len(piece)) for num_chars in (20_000, 80_000)]
    finds = [timeit.Timer(partial(find_secrets, text), timer=time.thread_time) for text in texts]
    short, long = (min(find.repeat(2, 1)) for find in finds)
    assert long < 12 * short  # 16 times as long if it grew as the square


def _redact(text: str, at: int, context_tokens: int = 1024) -> Context | None:
    document = Document(TextDocumentItem("file:///a.py", "python", 0, text))
    line_start = max(text.rfind("\n", 0, at), text.rfind("\r", 0, at)) + 1
    number = len(text[:line_start].replace("\r\n", "\n").replace("\r", "\n").split("\n")) - 1
    position = Position(number, at - line_start)
    with contextlib.suppress(InSecretError):
        return redact_context(build_editor_request(document, position, Settings(context=context_tokens)).context)
    return None


@pytest.mark.parametrize(
    ("before", "after", "sent"),
    [
        ("a = 1\r\nb ", "= 2\r\n", Context("a = 1\nb ", "= 2\n")),  # there is none
        (_LINE, f"\n{_LINE}", Context(f'a = "{PLACEHOLDER}"\n', f'\na = "{PLACEHOLDER}"\n')),
        (_KEY.text[:100], _KEY.text[100:], None),  # there is no suggestion in a key
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
    assert _redact('password = "hunter2c', 20) is None
    assert _redact(f'x = "{_TOKEN[:34]}', 39) is None


def test_while_ordinary_code_is_typed_everything_is_sent() -> None:
    for typed in (line[:at] for line in HARMLESS for at in range(1, len(line) + 1)):
        redact_parts([typed, ""], cursor=1)  # raises InSecretError


@pytest.mark.parametrize(
    "secret", [_SECRETS[form] for form in ("GitHub", "web token", "RSA key block", "key in a comment")], ids=str
)
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_no_part_of_a_secret_is_left_wherever_the_text_is_cut(secret: Secret, line_end: str) -> None:
    filler = "".join(f"value_{number} = {number}\n" for number in range(40))
    text = f"{filler}{secret.text}{filler}".replace("\n", line_end)
    for at in range(0, len(text), 13):
        context = _redact(text, at, context_tokens=32)
        if context is not None:
            assert count_secret_bytes([context.prefix, context.suffix], secret.secret.split("\n")) == 0, at


def test_no_part_of_a_secret_is_left_where_a_long_line_is_cut() -> None:
    text = "x = 1; " * 60 + f'a = "{_TOKEN}"; ' + "y = 2; " * 60
    for at in range(0, len(text), 3):
        context = _redact(text, at, context_tokens=32)
        if context is not None:
            assert count_secret_bytes([context.prefix, context.suffix], [_TOKEN], min_chars=6) == 0, at
