"""Fixtures of the tests of the language server."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.lsp_in_process import InProcess, run_in_process
from tests.support.session_bench import Bench


@pytest.fixture
async def both() -> AsyncIterator[InProcess]:
    """An editor and the language server, connected. `initialize` has not been sent."""
    async with run_in_process() as both:
        yield both


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    yield bench
    bench.session.close()
    bench.other_session.close()
    await bench.connector.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder, by the path without symbolic links."""
    return tmp_path.resolve()
