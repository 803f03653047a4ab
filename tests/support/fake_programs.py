"""Programs in a folder, which print what the test says."""

from collections.abc import Mapping
from pathlib import Path


def make_program(folder: Path, name: str, outputs: Mapping[str, str], status: int = 0) -> Path:
    """Writes a program that prints the output whose key is in its arguments. Returns its path."""
    folder.mkdir(exist_ok=True)
    cases = "".join(f"*{key}*) printf '%s\\n' '{output}' ;;\n" for key, output in outputs.items())
    path = folder / name
    path.write_text(f'#!/bin/sh\ncase "$*" in\n{cases}esac\nexit {status}\n')
    path.chmod(0o755)
    return path
