import re
from pathlib import Path

import pytest

from benchmarks.baselines.gguf_file import write_plain_gguf, write_tokenizer_gguf
from inference.protocol.completion import Description
from lsp_server.documents import MAX_CHARS
from midtoken.commands.doctor import (
    Check,
    Mark,
    add_arguments,
    check_all,
    check_document,
    describe_model,
)
from midtoken.server_arguments import add_connection_arguments
from tests.support.fake_triton import Answer, build_last_chunk, run_fake_triton, say
from tests.support.options import parse_options
from tests.support.tokenizer_folders import spec_of


async def _check(*arguments: str) -> list[Check]:
    """Returns the checks after that of the environment."""
    return [check async for check in check_all(parse_options(add_arguments, *arguments))][1:]


@pytest.mark.parametrize(
    ("answer", "mark", "what"),
    [
        (
            say(build_last_chunk("e")),
            Mark.GOOD,
            "a completion in the middle of a token: `return Nod` is completed with `e` ",
        ),
        (
            say(build_last_chunk("e", is_told=False)),
            Mark.NOTE,
            "a completion in the middle of a token: `return Nod` is completed with `e` ",
        ),
        (
            say("the engine has stopped"),
            Mark.WRONG,
            "the engine has stopped",
        ),
    ],
)
async def test_a_server_that_completes_is_good(answer: Answer, mark: Mark, what: str) -> None:
    async with run_fake_triton(answer) as server:
        first, second = await _check("--server", server.url)
    assert (first.mark, second.mark) == (Mark.GOOD, mark)
    assert first.what.startswith(f"completion server at {server.url}")
    assert second.what.startswith(what)


async def test_the_languages_are_those_of_the_model_that_is_served(tmp_path: Path) -> None:
    (tmp_path / "a.go").touch()
    answer = say(build_last_chunk("e"), description=Description(("python",), inputs=()))
    async with run_fake_triton(answer) as server:
        checks = await _check(str(tmp_path / "a.go"), "--server", server.url)
    assert checks[-1].mark is Mark.WRONG
    assert "a.go gets no suggestions (other_language)" in checks[-1].what


def test_the_size_of_a_gguf_model_in_parts_counts_each_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    spec = spec_of("qwen")
    first = write_tokenizer_gguf(tmp_path / "m-00001-of-00002.gguf", spec, "qwen2")
    second = write_plain_gguf(tmp_path / "m-00002-of-00002.gguf", num_parts=2)
    for path, size in ((first, 3_000_000), (second, 1_000_000)):
        path.write_bytes(path.read_bytes().ljust(size))
    options = parse_options(add_connection_arguments, "--model", str(first), "--state-dir", str(tmp_path / "state"))
    assert re.fullmatch(r"model .*/m-00001-of-00002-\w+, 4 MB", describe_model(options).what)


async def test_a_missing_server_is_wrong_and_there_is_something_to_do() -> None:
    [check] = await _check("--server", "127.0.0.1:9")
    assert check.mark is Mark.WRONG
    assert check.what.startswith("no server answers at 127.0.0.1:9")
    assert check.what.endswith("Start it there with midtoken serve, or omit --server")


async def test_an_incomplete_model_is_wrong_and_no_server_is_started(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    checks = await _check("--model", str(tmp_path), "--state-dir", str(tmp_path / "state"))
    assert [check.mark for check in checks] == [Mark.WRONG]
    assert checks[0].what.endswith("the model folder has no tokenizer.json")
    assert not (tmp_path / "state").exists() or not list((tmp_path / "state").rglob("serve.log"))


@pytest.mark.parametrize(
    ("name", "content", "languages", "mark", "what"),
    [
        ("a.py", b"x = 1\n", ("python",), Mark.GOOD, "a.py gets suggestions, unless"),
        ("a.rs", b"fn main() {}\n", None, Mark.GOOD, "a.rs gets suggestions, unless"),
        ("a.rs", b"fn main() {}\n", ("python",), Mark.WRONG, "the model knows only python"),
        ("a.py", b"x" * (MAX_CHARS + 1), ("python",), Mark.WRONG, "a.py gets no suggestions (too_large)"),
        ("a.py", b"\xff\xfe", ("python",), Mark.WRONG, "a.py is not UTF-8 at byte 0"),
        (".", None, ("python",), Mark.WRONG, "cannot read {folder}: Is a directory"),
        ("missing.py", None, ("python",), Mark.WRONG, "cannot read {folder}/missing.py: No such file"),
        (
            "excluded.py",
            b"x = 1\n",
            ("python",),
            Mark.WRONG,
            "excluded.py gets no suggestions (excluded): nothing of "
            "this file is sent: `.midtokenignore` line 1: `excluded.py`",
        ),
    ],
)
def test_a_file_gets_suggestions_or_there_is_a_reason(
    name: str, content: bytes | None, languages: tuple[str, ...] | None, mark: Mark, what: str, tmp_path: Path
) -> None:
    (tmp_path / ".midtokenignore").write_text("excluded.py\n")
    if content is not None:
        (tmp_path / name).write_bytes(content)
    check = check_document(tmp_path / name, {}, languages)
    assert (check.mark, what.format(folder=tmp_path) in check.what) == (mark, True)
