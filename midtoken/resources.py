"""Finds the model repository and the default model, which come with midtoken.

In a source tree both are symbolic links to folders at its root; a wheel contains copies of those folders.
"""

from importlib.resources import files
from pathlib import Path

from midtoken.errors import MissingResourceError

DEFAULT_MODEL_LANGUAGES = ("python",)  # those that it was trained on, by their identifiers in LSP


def find_model_repository() -> Path:
    """Returns the model repository of tritonserver. Raises MissingResourceError if it is missing."""
    return _find_folder("model_repository")


def find_default_model() -> Path:
    """Returns the folder of the default model. Raises MissingResourceError if it is missing."""
    return _find_folder("default_model")


def _find_folder(name: str) -> Path:
    path = Path(str(files("midtoken") / name)).resolve()
    if not path.is_dir():
        raise MissingResourceError(f"{path} is missing; install midtoken again")
    return path
