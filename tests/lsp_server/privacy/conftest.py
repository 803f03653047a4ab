"""Fixtures of the tests of what may be sent."""

from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder, by the path without symbolic links."""
    return tmp_path.resolve()
