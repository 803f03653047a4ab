"""Fixtures of the tests of the language server."""

from collections.abc import AsyncIterator

import pytest

from tests.support.lsp_in_process import InProcess, run_in_process


@pytest.fixture
async def both() -> AsyncIterator[InProcess]:
    """An editor and the language server, connected. `initialize` has not been sent."""
    async with run_in_process() as both:
        yield both
