"""Settings, options and fixtures for all tests: threads, hypothesis profiles, the wheel."""

import os
import re
import tempfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from inference.platforms import IMPORT_ROOT
from tests.support.installations import Installation, build_wheel, copy_sources, install_wheel

os.environ["TOKENIZERS_PARALLELISM"] = "false"  # its threads would compete with the tests'
os.environ["XDG_DATA_HOME"] = str(Path(tempfile.gettempdir(), "midtoken-tests"))  # not the model that a person chose
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "false"  # its threads in a fork can end it early
# Other Pythons are tested without most of these, and llama.cpp needs a compiler.
_MISSING = {
    name for name in ("torch", "transformers", "tokenizers", "onnxruntime", "llama_cpp") if find_spec(name) is None
}
_IMPORT = re.compile(r"^(?:from|import) ([\w.]+)(?: import ([\w, ]+))?", re.MULTILINE)
_BY_NAME_ONLY = {"test_vllm.py": "make test-vllm, which gets 3.4 GB"}
if "torch" not in _MISSING:
    import torch

    torch.set_num_threads(1)

_PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
settings.register_profile("full", _PATIENT, max_examples=24)
settings.register_profile("quick", _PATIENT, max_examples=12)  # pytest --hypothesis-profile=quick
settings.register_profile("few", _PATIENT, max_examples=4)  # on another Python
settings.load_profile("full")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("midtoken")
    group.addoption("--reliability", choices=["short", "full"], default="short", help="the form of tests/reliability")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves out the files that need what is missing, and those that run only where the command line names them."""
    return True if collection_path.suffix == ".py" and _why_left_out(collection_path, config) else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Names the files that a run of all tests left out: unlike skipped tests, they are not collected."""
    if config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return
    for path in sorted(Path(__file__).parent.rglob("test_*.py")):
        if reason := _why_left_out(path, config):
            terminalreporter.write_line(f"LEFT OUT {path.relative_to(config.rootpath)}: {reason}")


def _why_left_out(path: Path, config: pytest.Config) -> str:
    if path.name in _BY_NAME_ONLY and not any(path.name in each for each in config.args):
        return _BY_NAME_ONLY[path.name]
    missing = sorted(_find_missing(path))
    return f"{', '.join(missing)} not installed" if missing else ""


@cache
def _find_missing(path: Path) -> frozenset[str]:
    """Returns what a file imports and is missing, directly or by way of another file of ours."""
    if not _MISSING:
        return frozenset()
    names = set[str]()
    for module, imported in _IMPORT.findall(path.read_text()):
        names |= {module, *(f"{module}.{each.split()[0]}" for each in imported.split(",") if each)}
    files = (IMPORT_ROOT / f"{name.replace('.', '/')}.py" for name in names)
    return frozenset(_MISSING & names).union(*(_find_missing(each) for each in files if each.exists()))


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this source tree."""
    return build_wheel(copy_sources(tmp_path_factory.mktemp("source")))


@pytest.fixture(scope="session")
def light_installation(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """An empty environment after the wheel was installed without extras."""
    return install_wheel(wheel, tmp_path_factory.mktemp("light"))
