import argparse
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from inference.protocol.arrays import Array, asks_for_heartbeat, heartbeat_to_arrays
from midtoken.arguments.parser import add_connection_arguments
from midtoken.checks.check import Check, Mark
from midtoken.checks.server import check_server
from tests.support.fake_triton import ModelCall, build_last_chunk, run_fake_triton


async def _check(*arguments: str) -> list[Check]:
    parser = argparse.ArgumentParser()
    add_connection_arguments(parser)
    return [check async for check in check_server(parser.parse_args(arguments))]


async def _complete(call: ModelCall) -> AsyncIterator[Mapping[str, Array]]:
    yield heartbeat_to_arrays(0.0) if asks_for_heartbeat(call.arrays) else build_last_chunk("e")


async def _fail(call: ModelCall) -> AsyncIterator[Mapping[str, Array] | str]:
    yield heartbeat_to_arrays(70.0) if asks_for_heartbeat(call.arrays) else "the engine has stopped"


async def test_a_server_that_completes_is_good() -> None:
    async with run_fake_triton(_complete) as server:
        checks = await _check("--server", server.url)
    assert [check.mark for check in checks] == [Mark.GOOD, Mark.GOOD]
    assert checks[0].what.startswith(f"completion server at {server.url}: fake triton 1.0, idle, connected in ")
    assert checks[1].what.startswith("a completion in the middle of a token: `return Nod` goes on with `e` after ")


async def test_a_server_that_does_not_complete_is_wrong() -> None:
    async with run_fake_triton(_fail) as server:
        checks = await _check("--server", server.url)
    assert [check.mark for check in checks] == [Mark.GOOD, Mark.WRONG]
    assert "busy, its last step was 70 ms ago" in checks[0].what
    assert checks[1].what.startswith("a completion: ")


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
