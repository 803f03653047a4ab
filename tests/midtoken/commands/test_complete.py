"""The request of `midtoken complete`. tests/e2e/test_commands.py uses a real server."""

import asyncio
from pathlib import Path

import pytest

from inference.protocol.arrays import request_from_arrays
from inference.protocol.completion import CompletionRequest, Extent, Healing
from midtoken.cli import main
from tests.support.fake_triton import build_last_chunk, run_fake_triton, say


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ((), CompletionRequest("return Nod", suffix="\nrest")),
        (
            ("--max-tokens=3", "--healing=greedy", "--extent=single_line"),
            CompletionRequest(
                "return Nod", suffix="\nrest", max_tokens=3, healing=Healing.GREEDY, extent=Extent.SINGLE_LINE
            ),
        ),
    ],
)
async def test_the_request_has_the_text_around_the_cursor_and_each_option(
    options: tuple[str, ...], wanted: CompletionRequest, tmp_path: Path
) -> None:
    (tmp_path / "app.py").write_text("return Nod\nrest")
    async with run_fake_triton(say(build_last_chunk("e"))) as server:
        arguments = ["complete", f"{tmp_path}/app.py:1", *options, "--server", server.url]
        assert await asyncio.to_thread(main, arguments) == 0
    assert request_from_arrays(server.calls[-1].arrays) == wanted


async def test_a_file_of_tabs_is_continued_with_tabs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "app.py").write_text("class A:\n\tdef size(self):")
    async with run_fake_triton(say(build_last_chunk("\n        return 1"))) as server:
        status = await asyncio.to_thread(main, ["complete", f"{tmp_path}/app.py:2", "--server", server.url])
    assert (status, capsys.readouterr().out) == (0, "\n\t\treturn 1\n")
