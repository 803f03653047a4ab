"""Whether a model will run on this machine, as another process finds out, and how that is shown."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from inference.errors import ModelError
from inference.serving.triton_installation import IMPORT_ROOT
from midtoken.generated_folder import make_folder

TOO_LARGE = "too large"  # the name of what is said, if it is so


def forecast(path: Path) -> dict[str, str]:
    """Returns what `inference.model.forecast` says of a folder or GGUF file. Raises ModelError or LaunchError.

    In place of weights, there may be files with holes.
    """
    command = [sys.executable, "-m", "inference.model.forecast", str(make_folder(path))]
    found = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False, cwd=IMPORT_ROOT
    )
    said: dict[str, str] = json.loads(found.stdout or "{}")
    if "refused" in said:
        raise ModelError(said["refused"])
    return said


def print_figures(figures: Mapping[str, str]) -> None:
    """Prints a line for each. Raises ModelError if the model is too large for this machine."""
    for name, figure in figures.items():
        if name != TOO_LARGE:
            print(f"{name:17}{figure}")
    if TOO_LARGE in figures:
        raise ModelError(f"the model is too large for this machine: {figures[TOO_LARGE]}")
