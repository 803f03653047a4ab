"""The share of names that a file uses for the first time, and that stand in what the model is told of other files.

Only the file itself is open. Its text goes up to the line of the use, which is not part of it.
"""

import random
import re
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from benchmarks.corpora.projects import Project, fetch_projects
from benchmarks.measures.python_names import read_python
from benchmarks.measures.report import Figures, find_mean, find_percentile, track
from benchmarks.measures.tree_names import read_trees
from benchmarks.measures.used_names import FirstUse, NamedProject, Owner

_NUM_FILES = 12  # of a project
_MIN_LINES, _MAX_LINES = 30, 1500
_ASKED = (Owner.IMPORTED, Owner.OTHER)
_OTHERS = ("typescript", "go", "rust")


@dataclass(frozen=True, slots=True)
class Asked:
    """A name, and what was told before its line was written."""

    project: Project
    path: str
    use: FirstUse
    told: str

    @property
    def is_told(self) -> bool:
        """True if the name stands in what is told."""
        return re.search(rf"\b{re.escape(self.use.name)}\b", self.told) is not None


Tell = Callable[[Path, str, str], str]


def measure_told(tell: Tell, seed: int, is_short: bool) -> Figures:
    """Asks at each name that the project declares, in some files of each project."""
    asked = [each for project in track(fetch_projects(is_short), "telling") for each in ask(project, tell, seed)]
    figures: dict[str, float | None] = {"num_projects": len({each.project for each in asked})}
    for language in ("python", *_OTHERS):
        some = [each for each in asked if each.project.language == language]
        figures[f"num_names_{language}"] = sum(each.use.owner is Owner.IMPORTED for each in some)
        figures[f"told_share_{language}"] = _find_share(some, Owner.IMPORTED)
        figures[f"told_share_other_{language}"] = _find_share(some, Owner.OTHER)
        for owner in Owner:
            figures[f"{owner}_share_{language}"] = find_mean(each.use.owner is owner for each in some)
    figures["num_names_other"] = sum(each.use.owner is Owner.OTHER for each in asked)
    figures["told_share_other"] = _find_share(asked, Owner.OTHER)
    return {**figures, **_measure_bytes(asked)}


def _measure_bytes(asked: Sequence[Asked]) -> Figures:
    """Of what is told in each language, at all lines where a name of another file is used for the first time."""
    sizes: dict[str, list[int]] = defaultdict(list)
    known = [each for each in asked if each.use.owner in _ASKED]
    for (project, _, _), told in {(each.project, each.path, each.use.line): each.told for each in known}.items():
        sizes[project.language].append(len(told.encode()))
    medians = {f"told_bytes_{language}": statistics.median(some) for language, some in sizes.items()}
    nine_of_ten = find_percentile([size for some in sizes.values() for size in some], 90)
    return {**medians, "told_bytes_p90": nine_of_ten}


def ask(project: Project, tell: Tell, seed: int) -> Iterator[Asked]:
    """Yields the names of a sample of files. What is outside of the project is counted, but nothing is told for it."""
    texts = {path: (project.root / path).read_text(errors="replace") for path in project.list_files()}
    names = _read_names(project, texts)
    suitable = [path for path, text in texts.items() if _MIN_LINES <= text.count("\n") <= _MAX_LINES]
    for path in random.Random(seed).sample(suitable, min(len(suitable), _NUM_FILES)):
        lines = texts[path].splitlines(keepends=True)

        @cache
        def tell_above(line: int, path: str = path, lines: Sequence[str] = lines) -> str:
            return tell(project.root, path, "".join(lines[:line]))

        for use in names.find_first_uses(path):
            yield Asked(project, path, use, tell_above(use.line) if use.owner in _ASKED else "")


def _read_names(project: Project, texts: dict[str, str]) -> NamedProject:
    if project.language == "python":
        return read_python(texts)
    manifest = project.root / "go.mod"
    return read_trees(project.language, texts | ({"go.mod": manifest.read_text()} if manifest.exists() else {}))


def _find_share(asked: Sequence[Asked], owner: Owner) -> float | None:
    return find_mean(each.is_told for each in asked if each.use.owner is owner)
