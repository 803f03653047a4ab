"""Finds the model repository, the default model and the playground's page, which come with midtoken.

In a source tree they are symbolic links to other folders of it; a wheel contains copies of those folders. The page is
built: a source tree, and a wheel of it, have none before that.
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
