"""Settings, options and fixtures for all tests: threads, hypothesis profiles, the wheel."""

import os
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from inference.serving.triton_installation import IMPORT_ROOT
from tests.support.installations import Installation, build_wheel, copy_sources, install_wheel

os.environ["TOKENIZERS_PARALLELISM"] = "false"  # its threads would compete with the tests'
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "false"  # its threads in a fork can end it early
# Other Pythons are tested without these.
_MISSING = {name for name in ("torch", "transformers", "tokenizers", "onnxruntime") if find_spec(name) is None}
if "torch" not in _MISSING:
    import torch

    torch.set_num_threads(1)

_PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
settings.register_profile("full", _PATIENT, max_examples=24)
settings.register_profile("quick", _PATIENT, max_examples=12)  # pytest --hypothesis-profile=quick
settings.load_profile("full")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("midtoken")
    group.addoption("--replay-steps", type=int, help="steps of each replay of editing in an editor")
    group.addoption("--reliability", choices=["short", "full"], default="short", help="the form of tests/reliability")
    group.addoption("--replay-seed", type=int, help="seed of the first replay (with --replay-steps: a new one)")


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leaves out the files that need what is missing."""
    return True if _MISSING and collection_path.suffix == ".py" and _needs_missing(collection_path) else None


@cache
def _needs_missing(path: Path) -> bool:
    """Whether a file imports what is missing, or another file of ours that does."""
    names = re.findall(r"^(?:from|import) ([\w.]+)", path.read_text(), re.MULTILINE)
    files = (IMPORT_ROOT / f"{name.replace('.', '/')}.py" for name in names)
    return not _MISSING.isdisjoint(names) or any(_needs_missing(each) for each in files if each.exists())


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this source tree."""
    return build_wheel(copy_sources(tmp_path_factory.mktemp("source")))


@pytest.fixture(scope="session")
def light_installation(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """An empty environment after `pip install midtoken`."""
    return install_wheel(wheel, tmp_path_factory.mktemp("light"))
