"""What is installed: the packages of the extras, and the folders that come with midtoken.

In a source tree, the model repository, the default model and the page of the playground are symbolic links to other
folders of it; a wheel contains copies of those folders. The page is built: a source tree, and a wheel of it, have none
before that.
"""

import argparse
import sys
from collections.abc import Mapping
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from midtoken.errors import MissingPackagesError, MissingResourceError

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


DEFAULT_MODEL_LANGUAGES = ("python",)  # those that it was trained on, by their identifiers in LSP


def find_model_repository() -> Path:
    """Returns the model repository of tritonserver. Raises MissingResourceError if it is missing."""
    return _find_folder("model_repository")


def find_default_model() -> Path:
    """Returns the folder of the default model. Raises MissingResourceError if it is missing."""
    return _find_folder("default_model")


def find_playground_page() -> Path:
    """Returns the folder of the playground's page. Raises MissingResourceError if it was not built."""
    return check_page(Path(str(files("midtoken") / "playground_page")).resolve())


def check_page(folder: Path) -> Path:
    """Returns the folder if it has a page. Raises MissingResourceError."""
    if not (folder / "index.html").is_file():
        raise MissingResourceError(
            f"{folder} has no page: this midtoken was made without it. In a source tree, `make playground` builds it"
        )
    return folder


def _find_folder(name: str) -> Path:
    path = Path(str(files("midtoken") / name)).resolve()
    if not path.is_dir():
        raise MissingResourceError(f"{path} is missing; install midtoken again")
    return path
