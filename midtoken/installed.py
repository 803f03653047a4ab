"""What is installed: the packages of the extras, and the folders that come with midtoken.

In a source tree, the model repository, the bundled model and the page of the playground are symbolic links to other
folders of it; a wheel contains copies of those folders. The page is built: a source tree, and a wheel of it, have none
before that.
"""

from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from inference.errors import LaunchError
from inference.platforms import find_install_command

BUNDLED_MODEL_LANGUAGES = ("python",)  # those that it was trained on, by their identifiers in LSP

# Extra -> import name -> name of the distribution.
_PACKAGES = {
    "local": {
        **{name: name for name in ("aiohttp", "onnx", "onnxruntime", "safetensors", "tokenizers")},
        "prometheus_client": "prometheus-client",
    },
    "playground": {"aiohttp": "aiohttp"},
}


def require_packages(extra: str, purpose: str, other_way: str = "") -> None:
    """Raises LaunchError if this environment lacks packages of the extra.

    `purpose` begins the message, which names the missing packages next. `other_way` ends it.
    """
    missing = [name for import_name, name in _PACKAGES[extra].items() if find_spec(import_name) is None]
    if missing:
        raise LaunchError(f"{purpose} {', '.join(missing)}: run {find_install_command(extra)}{other_way}")


def find_model_repository() -> Path:
    """Returns the model repository of tritonserver. Raises LaunchError if it is missing."""
    return _find_folder("model_repository")


def find_bundled_model() -> Path:
    """Returns the folder of the bundled model. Raises LaunchError if it is missing."""
    return _find_folder("default_model")


def find_playground_page() -> Path:
    """Returns the folder of the playground's page. Raises LaunchError if it was not built."""
    problem = "has no page: this midtoken was built without it. In a source tree, `make playground` builds it"
    return _find_folder("playground_page", "index.html", problem)


def _find_folder(
    name: str, file: str = "", problem: str = "is not a folder; reinstall midtoken from a clone with symbolic links"
) -> Path:
    path = Path(str(files("midtoken") / name)).resolve()
    if not (path / file).exists():
        raise LaunchError(f"{path} {problem}")
    return path
