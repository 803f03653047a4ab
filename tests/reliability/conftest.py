"""Fixtures of the rows of `make test-reliability`."""

import pytest

from benchmarks.measures.report import RESULTS_DIR
from tests.support.reliability import Reliability


@pytest.fixture(scope="session")
def reliability(pytestconfig: pytest.Config) -> Reliability:
    """In which form the rows run."""
    return Reliability(pytestconfig.getoption("--reliability") == "full", RESULTS_DIR)
