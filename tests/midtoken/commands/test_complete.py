"""The request of `midtoken complete`. tests/e2e/test_commands.py uses a real server."""

import argparse
import asyncio
from pathlib import Path

import pytest

from inference.errors import InvalidRequestError
from inference.protocol.completion import CompletionRequest, Extent, Healing
from lsp_server.context import Context
from midtoken.cli import main
from midtoken.commands.complete import add_arguments, build_request
from tests.support.fake_triton import build_last_chunk, run_fake_triton, say
from tests.support.options import parse_options

_CURSOR = Context("return Nod", "\nrest")


def _parse(*arguments: str) -> argparse.Namespace:
    return parse_options(add_arguments, "app.py:1", *arguments)


def test_without_options_the_request_has_the_text_around_the_cursor() -> None:
    request = build_request(_parse(), _CURSOR)
    assert request == CompletionRequest("return Nod", suffix="\nrest", max_tokens=64)


def test_each_option_is_in_the_request() -> None:
    options = _parse("--max-tokens=3", "--healing=greedy", "--extent=single_line")
    request = build_request(options, _CURSOR)
    wanted = CompletionRequest(
        "return Nod", suffix="\nrest", max_tokens=3, healing=Healing.GREEDY, extent=Extent.SINGLE_LINE
    )
    assert request == wanted


def test_a_number_out_of_range_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="max_tokens"):
        build_request(_parse("--max-tokens=0"), _CURSOR)


async def test_a_file_of_tabs_is_continued_with_tabs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "app.py").write_text("class A:\n\tdef size(self):")
    async with run_fake_triton(say(build_last_chunk("\n        return 1"))) as server:
        status = await asyncio.to_thread(main, ["complete", f"{tmp_path}/app.py:2", "--server", server.url])
    assert (status, capsys.readouterr().out) == (0, "\n\t\treturn 1\n")
