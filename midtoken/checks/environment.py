"""Python and the installed packages."""

import platform
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import Requirement

from midtoken.checks.check import Check, good, note, wrong

_PYTHON = (3, 11)  # as in pyproject.toml
_PURPOSES = {
    "server": "a completion server on this machine",
    "torch": "GPUs and more model families",
    "plot": "midtoken surprisal --plot",
}


def check_python(found: tuple[int, int] = sys.version_info[:2]) -> Check:
    """Checks the version of the interpreter."""
    what = f"Python {platform.python_version()}, {sys.executable}"
    if found == _PYTHON:
        return good(what)
    return note(what, f"Only Python {_PYTHON[0]}.{_PYTHON[1]} is tested; install midtoken there if something fails.")


def check_packages(needs_server: bool) -> Iterator[Check]:
    """Checks the packages of midtoken and of each extra. Without a server of its own, only the first are needed."""
    try:
        requirements = [Requirement(text) for text in requires("midtoken") or ()]
    except PackageNotFoundError:
        yield note(
            "midtoken is not installed, but runs from its folder", "Run make setup to have it with all it needs."
        )
        return
    yield _check_extra("", requirements, is_needed=True)
    for extra in _PURPOSES:
        yield _check_extra(extra, requirements, is_needed=needs_server and extra == "server")


def _check_extra(extra: str, requirements: list[Requirement], is_needed: bool) -> Check:
    name = f"midtoken[{extra}]" if extra else "midtoken"
    wanted = [each for each in requirements if _belongs_to(each, extra)]
    found = {each.name: _find_version(each.name) for each in wanted}
    missing = [package for package, found_version in found.items() if found_version is None]
    old = [str(each) for each in wanted if (have := found[each.name]) is not None and have not in each.specifier]
    shown = ", ".join(f"{package} {have}" for package, have in found.items() if have is not None)
    purpose = f" for {_PURPOSES[extra]}" if extra else f" {_find_version('midtoken')}"
    advice = f"Run {sys.executable} -m pip install '{name}'."
    if not missing and not old:
        return good(f"{name}{purpose}: {shown}")
    problem = "; ".join([*(f"{each} is missing" for each in missing), *(f"{each} is not met" for each in old)])
    if is_needed:
        return wrong(f"{name}{purpose}: {problem}", advice)
    return note(f"{name}{purpose}: {problem}", f"If you want that: {advice[0].lower()}{advice[1:]}")


def _belongs_to(requirement: Requirement, extra: str) -> bool:
    marker = requirement.marker
    if marker is None:
        return not extra
    return marker.evaluate({"extra": extra}) and not (extra and marker.evaluate({"extra": ""}))


def _find_version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
