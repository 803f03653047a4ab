"""Checks for the packages of midtoken's extras, which `pip install midtoken` does not install."""

import argparse
import sys
from collections.abc import Mapping
from importlib.util import find_spec

from midtoken.errors import MissingPackagesError

# Import name -> name of the distribution.
_MODEL_PACKAGES = {name: name for name in ("onnx", "onnxruntime", "safetensors", "tokenizers")}
_BUNDLED_SERVER = {"pytriton": "nvidia-pytriton"}
_PLOT_PACKAGES = {"matplotlib": "matplotlib"}
_PLAYGROUND_PACKAGES = {"aiohttp": "aiohttp"}


def require_server_packages(options: argparse.Namespace) -> None:
    """Raises MissingPackagesError if this environment lacks packages that a completion server needs."""
    missing = _find_missing(_MODEL_PACKAGES if options.triton_binary else _MODEL_PACKAGES | _BUNDLED_SERVER)
    if missing:
        other_way = ", or name a running server with --server HOST:PORT" if "server" in options else ""
        raise MissingPackagesError(
            f"a completion server cannot run here without {', '.join(missing)}: {_build_hint('server')}{other_way}"
        )


def require_plot_packages() -> None:
    """Raises MissingPackagesError if this environment lacks packages for drawing pictures."""
    missing = _find_missing(_PLOT_PACKAGES)
    if missing:
        raise MissingPackagesError(f"--plot needs {', '.join(missing)}: {_build_hint('plot')}")


def require_playground_packages() -> None:
    """Raises MissingPackagesError if this environment lacks packages that serve the playground's page."""
    missing = _find_missing(_PLAYGROUND_PACKAGES)
    if missing:
        raise MissingPackagesError(f"the playground needs {', '.join(missing)}: {_build_hint('playground')}")


def _find_missing(packages: Mapping[str, str]) -> list[str]:
    return [name for import_name, name in packages.items() if find_spec(import_name) is None]


def _build_hint(extra: str) -> str:
    return f"run {sys.executable} -m pip install 'midtoken[{extra}]'"
