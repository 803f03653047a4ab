"""Settings, options and fixtures for all tests: threads, hypothesis profiles, the wheel."""

import os
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

from tests.support.installations import Installation, build_wheel, install_wheel

os.environ["TOKENIZERS_PARALLELISM"] = "false"  # its threads would compete with the tests'
torch.set_num_threads(1)

_PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
settings.register_profile("full", _PATIENT, max_examples=50)
settings.register_profile("quick", _PATIENT, max_examples=12)  # pytest --hypothesis-profile=quick
settings.load_profile("full")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("midtoken")
    group.addoption("--replay-steps", type=int, help="steps of each replay of editing in an editor")
    group.addoption("--pictures", help="folder for the pictures of editors")
    group.addoption("--replay-seed", type=int, help="seed of the first replay (with --replay-steps: a new one)")


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this source tree."""
    return build_wheel(tmp_path_factory.mktemp("source"))


@pytest.fixture(scope="session")
def light_installation(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """An empty environment after `pip install midtoken`."""
    return install_wheel(wheel, tmp_path_factory.mktemp("light"))
