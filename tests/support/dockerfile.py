"""Reads deploy/Dockerfile and .dockerignore, as far as they go."""

import json
import re
import shlex
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from inference.serving.triton_installation import IMPORT_ROOT

DOCKERFILE = IMPORT_ROOT / "deploy" / "Dockerfile"
HOME = "/opt/midtoken"  # the WORKDIR


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction, its lines joined."""

    name: str
    value: str

    def read_list(self) -> list[str]:
        """The strings of a value in the form of a JSON list."""
        strings: list[str] = json.loads(self.value[self.value.index("[") :])
        return strings


def read_instructions() -> list[Instruction]:
    """All instructions of the file, in their order."""
    text = re.sub(r"^\s*#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    return [Instruction(*line.split(maxsplit=1)) for line in lines if line.strip()]


def find_values(name: str) -> list[str]:
    """The values of all instructions of this name."""
    return [each.value for each in read_instructions() if each.name == name]


def read_copies() -> list[tuple[list[str], str]]:
    """The sources and the target of each COPY."""
    words = [shlex.split(value) for value in find_values("COPY")]
    return [(each[:-1], each[-1]) for each in words]


def read_environment() -> dict[str, str]:
    """The variables that the image sets."""
    return dict(value.split("=", 1) for value in find_values("ENV"))


def read_command() -> list[str]:
    """The command line of the server."""
    [command] = [each for each in read_instructions() if each.name == "CMD"]
    return command.read_list()


def is_ignored(path: str) -> bool:
    """Whether .dockerignore keeps a file out of the build: the last line that matches it or a folder of it decides."""
    ignored = False
    for line in (IMPORT_ROOT / ".dockerignore").read_text().splitlines():
        if line and not line.startswith("#"):
            pattern = line.removeprefix("!")
            if _matches(pattern, path):
                ignored = not line.startswith("!")
    return ignored


def _matches(pattern: str, path: str) -> bool:
    pure = PurePosixPath(path)
    places = [str(pure), *map(str, pure.parents)][:-1]
    if pattern.startswith("**/"):
        return any(fnmatchcase(PurePosixPath(place).name, pattern.removeprefix("**/")) for place in places)
    return any(place.count("/") == pattern.count("/") and fnmatchcase(place, pattern) for place in places)


def list_files(source: str) -> list[str]:
    """The files that a COPY of this source takes, as paths in the repository."""
    place = IMPORT_ROOT / source
    found = [place] if place.is_file() else [path for path in place.rglob("*") if path.is_file()]
    return [str(path.relative_to(IMPORT_ROOT)) for path in found]


def copy_files(folder: Path) -> None:
    """Copies what the COPY instructions copy to `folder`, which stands for the WORKDIR."""
    for sources, target in read_copies():
        for source in sources:
            for path in list_files(source):
                if not is_ignored(path):
                    own = PurePosixPath(path).relative_to(source) if (IMPORT_ROOT / source).is_dir() else ""
                    place = folder / target / (PurePosixPath(source).name if target.endswith("/") else "") / own
                    place.parent.mkdir(parents=True, exist_ok=True)
                    place.write_bytes((IMPORT_ROOT / path).read_bytes())
