import argparse
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from inference.protocol.arrays import Array, asks_for_heartbeat, heartbeat_to_arrays
from lsp_server.documents import MAX_CHARS
from midtoken.checks import Check, Mark, check_document, check_model_folder, check_packages, check_python, check_server
from midtoken.installed import find_default_model
from midtoken.server_arguments import add_connection_arguments
from tests.support.fake_triton import Answer, ModelCall, build_last_chunk, run_fake_triton


def test_only_the_tested_python_is_good() -> None:
    assert check_python((3, 11)).mark is Mark.GOOD
    newer = check_python((3, 14))
    assert (newer.mark, newer.advice != "") == (Mark.NOTE, True)


def test_the_packages_of_each_extra_are_listed_with_their_versions() -> None:
    names = [check.what.partition(" ")[0] for check in check_packages(needs_server=True)]
    assert names == ["midtoken", "midtoken[server]", "midtoken[torch]", "midtoken[plot]"]
    for check in check_packages(needs_server=True):
        assert check.mark is Mark.GOOD, check


def test_the_default_model_is_complete() -> None:
    assert check_model_folder(find_default_model()).mark is Mark.GOOD


def test_missing_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    check = check_model_folder(tmp_path)
    assert (check.mark, check.what) == (Mark.WRONG, f"model {tmp_path}: tokenizer.json, *.safetensors missing")


def test_every_part_of_the_weights_is_needed(tmp_path: Path) -> None:
    for name in ("config.json", "tokenizer.json", "a.safetensors"):
        (tmp_path / name).write_text("{}")
    index = {"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert check_model_folder(tmp_path).what == f"model {tmp_path}: b.safetensors missing"
    (tmp_path / "model.safetensors.index.json").write_text("[]")
    assert check_model_folder(tmp_path).what == f"model {tmp_path}: a readable model.safetensors.index.json missing"


async def _check(*arguments: str) -> list[Check]:
    parser = argparse.ArgumentParser()
    add_connection_arguments(parser)
    return [check async for check in check_server(parser.parse_args(arguments))]


async def _complete(call: ModelCall) -> AsyncIterator[Mapping[str, Array]]:
    yield heartbeat_to_arrays(0.0) if asks_for_heartbeat(call.arrays) else build_last_chunk("e")


async def _fail(call: ModelCall) -> AsyncIterator[Mapping[str, Array] | str]:
    yield heartbeat_to_arrays(70.0) if asks_for_heartbeat(call.arrays) else "the engine has stopped"


@pytest.mark.parametrize(
    ("answer", "mark", "state", "what"),
    [
        (_complete, Mark.GOOD, "idle", "a completion in the middle of a token: `return Nod` goes on with `e` after "),
        (_fail, Mark.WRONG, "busy, its last step was 70 ms ago", "a completion: "),
    ],
)
async def test_a_server_that_completes_is_good(answer: Answer, mark: Mark, state: str, what: str) -> None:
    async with run_fake_triton(answer) as server:
        first, second = await _check("--server", server.url)
    assert (first.mark, second.mark) == (Mark.GOOD, mark)
    assert first.what.startswith(f"completion server at {server.url}: fake triton 1.0, {state}, connected in ")
    assert second.what.startswith(what)


async def test_a_missing_server_is_wrong_and_there_is_something_to_do() -> None:
    [check] = await _check("--server", "127.0.0.1:9")
    assert check.mark is Mark.WRONG
    assert check.what.startswith("completion server: no server answers at 127.0.0.1:9")
    assert check.advice


async def test_an_incomplete_model_is_wrong_and_no_server_is_started(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    checks = await _check("--model", str(tmp_path), "--state-dir", str(tmp_path / "state"))
    assert [check.mark for check in checks] == [Mark.WRONG]
    assert "tokenizer.json, *.safetensors missing" in checks[0].what
    assert not (tmp_path / "state").exists() or not list((tmp_path / "state").rglob("serve.log"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path.resolve()


def _check_file(path: Path, languages: tuple[str, ...] | None = ("python",)) -> tuple[Mark, str]:
    check = check_document(path, {}, languages)
    return check.mark, check.what


def test_an_ordinary_file_gets_suggestions(folder: Path) -> None:
    (folder / "a.py").write_text("x = 1\n")
    assert _check_file(folder / "a.py")[0] is Mark.GOOD


def test_an_excluded_file_gets_none_and_the_rule_is_named(folder: Path) -> None:
    (folder / "a.py").write_text("x = 1\n")
    (folder / ".midtokenignore").write_text("a.py\n")
    rule = "nothing of this file is sent: `.midtokenignore` line 1: `a.py`"
    assert _check_file(folder / "a.py") == (Mark.WRONG, f"{folder / 'a.py'} gets no suggestions (excluded): {rule}")


def test_a_file_of_another_language_gets_none_from_a_model_that_does_not_know_it(folder: Path) -> None:
    (folder / "a.rs").write_text("fn main() {}\n")
    mark, what = _check_file(folder / "a.rs")
    assert (mark, "the default model knows only python" in what) == (Mark.WRONG, True)
    assert _check_file(folder / "a.rs", languages=None)[0] is Mark.GOOD


def test_a_file_that_is_too_large_gets_none(folder: Path) -> None:
    (folder / "a.py").write_text("x" * (MAX_CHARS + 1))
    mark, what = _check_file(folder / "a.py")
    assert (mark, "gets no suggestions (too_large)" in what) == (Mark.WRONG, True)


def test_a_file_that_is_no_text_gets_none(folder: Path) -> None:
    (folder / "a.py").write_bytes(b"\xff\xfe")
    assert _check_file(folder / "a.py")[0] is Mark.WRONG
    (folder / "b.py").mkdir()
    assert _check_file(folder / "b.py") == (Mark.WRONG, f"{folder / 'b.py'} cannot be read: Is a directory")


def test_a_file_that_does_not_exist_yet_is_a_note(folder: Path) -> None:
    assert _check_file(folder / "a.py")[0] is Mark.NOTE
