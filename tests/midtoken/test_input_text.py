import io
import sys
from pathlib import Path

import pytest

from inference.protocol.completion import CompletionRequest
from lsp_server.context import Context
from lsp_server.guard import PLACEHOLDER
from midtoken.commands.doctor import Mark, check_document
from midtoken.input_text import ClearedText, add_text_arguments, read_text
from midtoken.server_arguments import UsageError
from tests.support.options import parse_options
from tests.support.secret_forms import SECRETS


def test_a_file_or_standard_input_is_read_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"\xc3\xa9\r\n\x00")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"piped\r\n")))
    assert (read_text(str(path)), read_text("-")) == ("é\r\n\x00", "piped\r\n")
    with pytest.raises(UsageError, match=f"cannot read {tmp_path}: Is a directory"):
        read_text(str(tmp_path))


def _read_cursor(place: str) -> Context:
    return ClearedText(parse_options(add_text_arguments)).read_cursor(place)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "a:1:b.py"  # a name may have colons
    path.write_bytes("first\r\nzwei é\n\tthird".encode())
    return path


@pytest.mark.parametrize(
    ("place", "prefix"),
    [("2:1", "first\n"), ("2:7", "first\nzwei é"), ("1", "first"), ("3:3", "first\nzwei é\n\tt")],
)
def test_lines_and_columns_count_characters_from_one(place: str, prefix: str, source: Path) -> None:
    cursor = _read_cursor(f"{source}:{place}")
    assert cursor.prefix == prefix
    assert cursor.prefix + cursor.suffix == source.read_text()


@pytest.mark.parametrize(
    ("text", "place", "prefix"),
    [
        ('a = "l\rr"\ntot\n', "2:4", 'a = "l\nr"\ntot'),
        ("a\r\nb\n", "1", "a"),
        ("a\rb\r", "2", "a\nb"),
    ],
)
def test_lines_of_a_file_are_those_of_an_editor(text: str, place: str, prefix: str, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(text.encode())
    assert _read_cursor(f"{tmp_path}/a.py:{place}").prefix == prefix


@pytest.mark.parametrize(
    ("cursor", "message"),
    [
        ("app.py", "is not FILE:LINE:COLUMN"),
        ("app.py:²", "is not FILE:LINE:COLUMN"),
        ("nowhere.py:1:1", "cannot read nowhere.py: No such file"),
        ("{folder}/latin.py:1:1", "not UTF-8 at byte 5"),
        ("{source}:9:1", "has 3 lines; there is no line 9"),
        ("{source}:0:1", "there is no line 0"),
        ("{source}:1:7", "has 5 characters; the column must be between 1 and 6"),
        ("{source}:1:0", "the column must be between 1 and 6"),
    ],
)
def test_an_invalid_cursor_is_refused_with_the_reason(source: Path, cursor: str, message: str) -> None:
    source.with_name("latin.py").write_bytes(b"# caf\xe9")
    with pytest.raises(UsageError, match=message):
        _read_cursor(cursor.format(source=source, folder=source.parent))


def test_that_a_secret_is_replaced_is_said_once_and_only_of_what_is_sent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = f'key = "{SECRETS[0].secret}"\nA='
    for name in ("app.py", ".env"):
        (tmp_path / name).write_text(secret)
        text = ClearedText(parse_options(add_text_arguments, "--server", "127.0.0.1:1"))
        request = CompletionRequest(text.read_cursor(f"{tmp_path / name}:2").prefix)
        assert capsys.readouterr().err == ""
        if name == ".env":
            with pytest.raises(UsageError, match="nothing of this file is sent"):
                text.clear(request)
        else:
            assert [PLACEHOLDER in text.clear(request).value.prefix for _ in range(2)] == [True, True]
        note = f"midtoken: {PLACEHOLDER} is sent instead of each secret; --send-secrets sends them\n"
        assert capsys.readouterr().err == ("" if name == ".env" else note)


@pytest.mark.parametrize(
    ("name", "known", "is_noted"),
    [
        *(("a.rs", ("python",), True), ("a.rs", None, False), ("a", ("python",), True)),
        *((name, ("python", "cpp", "tsx"), False) for name in ("a.py", "A.PY", "a.pyw", "a.cc", "a.tsx")),
    ],
)
def test_a_language_that_the_model_does_not_know_is_noted_as_the_doctor_says_it(
    name: str, known: tuple[str, ...] | None, is_noted: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text("x")
    text = ClearedText(parse_options(add_text_arguments))
    text.read_cursor(f"{tmp_path / name}:1")
    text.note_languages(known or ())
    note = f"midtoken: the model knows only python, so an editor shows nothing in {tmp_path / name}\n"
    assert capsys.readouterr().err == note * is_noted
    assert (check_document(tmp_path / name, {}, known).mark is Mark.WRONG) == is_noted
