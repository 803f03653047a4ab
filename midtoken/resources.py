"""The files that come with midtoken and are not Python modules of it: the model repository and the default model.

In a source tree both are symbolic links to the folders at its root; a wheel carries copies of those folders.
"""

from importlib.resources import files
from pathlib import Path

from midtoken.errors import MissingResourceError


def find_model_repository() -> Path:
    """The folder that tritonserver reads its models from. Raises MissingResourceError where it is missing."""
    return _find_folder("model_repository")


def find_default_model() -> Path:
    """The folder of the model that comes with midtoken. Raises MissingResourceError where it is missing."""
    return _find_folder("default_model")


def _find_folder(name: str) -> Path:
    path = Path(str(files("midtoken") / name)).resolve()
    if not path.is_dir():
        raise MissingResourceError(f"{path} is missing; install midtoken again")
    return path
