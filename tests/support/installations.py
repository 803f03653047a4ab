"""The wheel, installed in an environment that contains its declared dependencies and nothing else.

Nothing is downloaded. The wheel is built from the source tree. Its dependencies, direct and indirect, are links to the
files of the environment that runs the tests.
"""

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution, PathDistribution, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from inference.platforms import IMPORT_ROOT

PACKAGES = ("trie_cache", "inference", "lsp_server", "midtoken")  # the import names of the wheel
_PAGE = "editors/playground/dist"  # of the playground; it may not be built
_PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")


@dataclass(frozen=True, slots=True)
class Installation:
    """A virtual environment outside the source tree that holds the wheel."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def midtoken(self) -> Path:
        """The path of the `midtoken` command that the wheel installs."""
        return self.folder / "bin" / "midtoken"

    @property
    def site_packages(self) -> Path:
        return self.folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"

    def run(self, *command: Path | str, **options: Any) -> "subprocess.CompletedProcess[str]":
        """Runs a command in the environment's folder, without variables that let Python find the source tree."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        return subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=100, **options
        )


def copy_sources(folder: Path) -> Path:
    """Copies what a wheel is built of to the folder, so that the source tree is not changed, and returns the folder."""
    page = [_PAGE] if (IMPORT_ROOT / _PAGE).exists() else []
    for name in (*PACKAGES, "model_repository", "models/default", *page):
        shutil.copytree(IMPORT_ROOT / name, folder / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "README.md"):
        shutil.copy(IMPORT_ROOT / name, folder)
    return folder


def build_wheel(folder: Path) -> Path:
    """Builds the wheel of a copy of the source tree. Raises CalledProcessError, with what was said."""
    options = ("--no-deps", "--no-build-isolation", "--no-index")
    subprocess.run([*_PIP, "wheel", *options, "-w", folder / "dist", folder], check=True, stderr=subprocess.PIPE)
    (wheel,) = (folder / "dist").glob("*.whl")
    return wheel


def install_wheel(wheel: Path, folder: Path, extras: Sequence[str] = ()) -> Installation:
    """Makes a new environment with the wheel, its dependencies and those of the given extras."""
    venv.create(folder, symlinks=True)
    installation = Installation(folder)
    installation.run(*_PIP, "--python", installation.python, "install", "--no-deps", "--no-index", wheel, check=True)
    (metadata,) = installation.site_packages.glob("midtoken-*.dist-info")
    for dependency in _find_dependencies(PathDistribution(metadata), extras):
        _link_files(dependency, installation.site_packages)
    return installation


def _find_dependencies(root: Distribution, extras: Sequence[str]) -> Iterator[Distribution]:
    """Returns each distribution of this environment that `root` needs, once. Fails if a version does not match."""
    seen: set[tuple[str, str]] = set()
    yielded: set[str] = set()
    waiting = [(root, extra) for extra in ("", *extras)]
    while waiting:
        parent, parent_extra = waiting.pop()
        for requirement in map(Requirement, parent.requires or ()):
            if requirement.marker and not requirement.marker.evaluate({"extra": parent_extra}):
                continue
            name = canonicalize_name(requirement.name)
            found = distribution(name)
            assert requirement.specifier.contains(found.version, prereleases=True), f"{requirement}: {found.version}"
            if name not in yielded:
                yielded.add(name)
                yield found
            new = {(name, extra) for extra in ("", *requirement.extras)} - seen
            seen |= new
            waiting += [(found, extra) for _, extra in new]


def _link_files(dependency: Distribution, site_packages: Path) -> None:
    for file in set(dependency.files or ()):  # some RECORDs name a file twice
        if ".." not in file.parts:  # commands
            link = site_packages / file
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(str(dependency.locate_file(file)))
