"""Fixtures of the rows of `make test-reliability`."""

import pytest

from benchmarks.measures.report import RESULTS_DIR
from tests.support.reliability import Reliability


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves what is marked `full` to `make test-reliability`."""
    if config.getoption("--reliability") != "full":
        left = [item for item in items if item.get_closest_marker("full") is not None]
        items[:] = [item for item in items if item not in left]
        config.hook.pytest_deselected(items=left)


@pytest.fixture(scope="session")
def reliability(pytestconfig: pytest.Config) -> Reliability:
    """In which form the rows run."""
    return Reliability(pytestconfig.getoption("--reliability") == "full", RESULTS_DIR)
