import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from benchmarks.baselines.gguf_file import write_plain_gguf, write_tokenizer_gguf
from benchmarks.corpora.tokenizer_kinds import TOKENIZER_KINDS
from lsp_server.documents import MAX_CHARS
from midtoken.commands.doctor import (
    Check,
    Mark,
    check_document,
    check_editors,
    check_python,
    check_server,
)
from midtoken.server_arguments import add_connection_arguments
from tests.support.fake_triton import Answer, build_last_chunk, run_fake_triton, say
from tests.support.options import parse_options


def test_only_the_tested_pythons_are_good() -> None:
    assert [check_python((3, minor)).mark for minor in range(10, 14)] == [Mark.GOOD] * 4
    newer = check_python((3, 15))
    assert (newer.mark, newer.advice != "") == (Mark.NOTE, True)


async def _check(*arguments: str) -> list[Check]:
    return [check async for check in check_server(parse_options(add_connection_arguments, *arguments))]


@pytest.mark.parametrize(
    ("answer", "mark", "state", "what"),
    [
        (
            say(build_last_chunk("e")),
            Mark.GOOD,
            "idle",
            "a completion in the middle of a token: `return Nod` is completed with `e` ",
        ),
        (
            say(build_last_chunk("e", is_told=False)),
            Mark.NOTE,
            "idle",
            "a completion in the middle of a token: `return Nod` is completed with `e` ",
        ),
        (
            say("the engine has stopped", heartbeat_ms=70.0),
            Mark.WRONG,
            "busy, its last step was 70 ms ago",
            "a completion: ",
        ),
    ],
)
async def test_a_server_that_completes_is_good(answer: Answer, mark: Mark, state: str, what: str) -> None:
    async with run_fake_triton(answer) as server:
        first, second = await _check("--server", server.url)
    assert (first.mark, second.mark) == (Mark.GOOD, mark)
    assert first.what.startswith(f"completion server at {server.url}: {state}, connected in ")
    assert second.what.startswith(what)


async def test_the_size_of_a_gguf_model_in_parts_counts_each_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    spec = next(kind for kind in TOKENIZER_KINDS if kind.name == "qwen2").build()
    first = write_tokenizer_gguf(tmp_path / "m-00001-of-00002.gguf", spec, "qwen2")
    second = write_plain_gguf(tmp_path / "m-00002-of-00002.gguf", num_parts=2)
    for path, size in ((first, 3_000_000), (second, 1_000_000)):
        path.write_bytes(path.read_bytes().ljust(size))
    options = parse_options(add_connection_arguments, "--model", str(first), "--state-dir", str(tmp_path / "state"))
    checks = check_server(options)
    assert re.fullmatch(r"model .*/m-00001-of-00002-\w+, 4 MB", (await anext(checks)).what)


async def test_a_missing_server_is_wrong_and_there_is_something_to_do() -> None:
    [check] = await _check("--server", "127.0.0.1:9")
    assert check.mark is Mark.WRONG
    assert check.what.startswith("completion server: no server answers at 127.0.0.1:9")
    assert check.advice


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
        ("a.py", b"\xff\xfe", ("python",), Mark.WRONG, "a.py is not UTF-8"),
        (".", None, ("python",), Mark.WRONG, "cannot be read: Is a directory"),
        ("missing.py", None, ("python",), Mark.NOTE, "missing.py"),
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
    assert (check.mark, what in check.what) == (mark, True)


def _make_program(folder: Path, name: str, outputs: Mapping[str, str], status: int = 0) -> None:
    """Writes a program that prints the output whose key is in its arguments."""
    folder.mkdir(exist_ok=True)
    cases = "".join(f"*{key}*) printf '%s\\n' '{output}' ;;\n" for key, output in outputs.items())
    path = folder / name
    path.write_text(f'#!/bin/sh\ncase "$*" in\n{cases}esac\nexit {status}\n')
    path.chmod(0o755)


def _check_programs(folder: Path) -> list[tuple[Mark, str, str]]:
    environment = {"PATH": str(folder / "bin"), "HOME": str(folder)}
    return [(check.mark, check.what, check.advice) for check in check_editors(environment)]


def test_without_editors_there_is_one_note(tmp_path: Path) -> None:
    [(mark, what, advice)] = _check_programs(tmp_path)
    assert (mark, what) == (Mark.NOTE, "no supported editor is on the path")
    assert advice


def _say(version: str, key: str = "-", answer: str = "") -> dict[str, str]:
    return {"--version": version, key: answer}


_EXTENSIONS = "other.midtoken@2\nmidtoken.midtoken@0.1.0"
_HELIX = "helix 25.07.1 (a05c151b)"
_SERVER = "Configured language servers:\n  \033[0;32m✓\033[m ours: \033[0;32m/home/me/bin/midtoken\033[m\nIndent: ✓"


@pytest.mark.parametrize(
    ("name", "outputs", "mark", "what"),
    [
        (
            "nvim",
            _say("NVIM v0.12.1\nBuild", "--headless", "the plugin"),
            Mark.GOOD,
            "Neovim 0.12.1 (nvim) with the plugin",
        ),
        ("nvim", _say("NVIM v0.12.0-dev", "--headless"), Mark.NOTE, "Neovim 0.12.0-dev (nvim) without midtoken"),
        (
            "code",
            _say("1.139.0\nabc", "--list", _EXTENSIONS),
            Mark.GOOD,
            "VS Code 1.139.0 (code) with midtoken.midtoken@0.1.0",
        ),
        ("code-server", _say("1.1", "--list", "a.midtoken@2"), Mark.NOTE, "VS Code 1.1 (code-server) without midtoken"),
        ("code", {}, Mark.NOTE, "VS Code of an unknown version (code) without midtoken"),
        ("hx", _say(_HELIX, "--health", _SERVER), Mark.GOOD, "Helix 25.07.1 (hx) with /home/me/bin/midtoken"),
        (
            "helix",
            _say(_HELIX, "--health", _SERVER.replace("✓", "✘")),
            Mark.NOTE,
            "Helix 25.07.1 (helix) without midtoken",
        ),
    ],
)
def test_an_editor_is_shown_with_its_version_and_what_it_lacks(
    name: str, outputs: Mapping[str, str], mark: Mark, what: str, tmp_path: Path
) -> None:
    _make_program(tmp_path / "bin", name, outputs)
    [check] = _check_programs(tmp_path)
    assert check[:2] == (mark, what)
    assert bool(check[2]) == (mark is not Mark.GOOD)


def test_an_editor_that_fails_is_a_note(tmp_path: Path) -> None:
    _make_program(tmp_path / "bin", "code", _say("1.1", "--list", _EXTENSIONS), status=3)
    assert _check_programs(tmp_path)[0][:2] == (Mark.NOTE, "VS Code of an unknown version (code) without midtoken")
