"""Paths that Triton can give to a shell: it starts the models' stubs with one, and puts no quotes around the paths."""

import re
from pathlib import Path

from inference.serving.triton_installation import link

_SAFE = re.compile(r"[\w/.,:@%+=-]+")


def to_shell_path(path: Path, folder: Path, name: str) -> Path:
    """The path itself where a shell takes it for one word; else `name`, which is made a link to it in `folder`.

    `folder` must be the shell's working folder. Raises OSError where the link cannot be made.
    """
    if _SAFE.fullmatch(str(path)):
        return path
    link(folder / name, path)
    return Path(name)
