"""The fixture of these tests."""

from collections.abc import AsyncIterator

import pytest

from tests.support.front import FrontClient, run_front


@pytest.fixture
async def front() -> AsyncIterator[FrontClient]:
    async with run_front() as front:
        yield front
