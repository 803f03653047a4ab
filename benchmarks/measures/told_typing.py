"""What it costs somebody who types that the model is told of the project.

A session as in `benchmarks.keystrokes` is played in files of real projects, whose folders are the workspace, and each
file is saved before the cursor jumps. It is played again with the same files in no workspace, so that nothing is
told: `untold_…`. Both have a window of 1,024 tokens and the same server. Each pair has its own ratio; `ghost_ratio` is
the median of them. All other figures are of the keys of all pairs.
"""

import asyncio
import shutil
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.corpora.projects import PROJECTS
from benchmarks.corpora.typist import SizedFile, draw_session
from benchmarks.keystrokes import Played, find_figures, play
from benchmarks.measures.host import run_host
from benchmarks.measures.replay_editor import Workspace
from benchmarks.measures.report import Figures, find_mean
from inference.config import EngineConfig
from midtoken.installed import find_default_model

_NUM_KEYS, _NUM_SHORT_KEYS = 1_000, 60  # at least, of one replay
_NUM_PAIRS = 3
_NUM_PROJECTS = 5
_SIZES = (1_000, 3_500, 10_000, 30_000, 60_000)  # in bytes
_CONTEXT_TOKENS = 1024
_SHARED = ("context_reads_le_1_share", "prefetched_share", "ghost_ms_p50", "ghost_ms_p99", "first_ms_p50")


def measure_typing(seed: int, is_short: bool) -> Figures:
    """Plays the pairs one after the other."""
    with tempfile.TemporaryDirectory(prefix="midtoken-") as folder:
        return asyncio.run(_measure(Path(folder).resolve(), seed, is_short))


async def _measure(folder: Path, seed: int, is_short: bool) -> Figures:
    files = dict(_copy_files(folder, 2 if is_short else _NUM_PROJECTS))
    session = draw_session([*files.values()], _NUM_SHORT_KEYS if is_short else _NUM_KEYS, seed)
    num_pairs = 1 if is_short else _NUM_PAIRS
    told = Workspace(tuple(files), tuple(sorted(folder.iterdir())))
    untold = replace(told, folders=())
    config = EngineConfig(find_default_model(), num_threads=1, max_context_tokens=_CONTEXT_TOKENS)
    async with run_host(config) as url:
        pairs = [(await play(url, session, told), await play(url, session, untold)) for _ in range(num_pairs)]
    return find_told_figures([pair[0] for pair in pairs], [pair[1] for pair in pairs])


def _copy_files(folder: Path, num_projects: int) -> Iterator[tuple[Path, SizedFile]]:
    """Copies projects, and yields the files in each that are nearest to some sizes."""
    projects = [each for each in PROJECTS if each.language == "python"][:num_projects]
    for number, project in enumerate(projects):
        project.fetch()
        copy = shutil.copytree(project.root, folder / project.root.name)
        texts = {path: (copy / path).read_text(errors="replace") for path in project.list_files()}
        usual = {path: text for path, text in texts.items() if not {"\r", "\f"} & set(text)}
        for size in (_SIZES[number], _SIZES[number - 2]):
            _, path = min((abs(len(text) - size), path) for path, text in usual.items())
            yield copy / path, SizedFile(usual[path], size)


def find_told_figures(told: Sequence[Played], untold: Sequence[Played]) -> Figures:
    """The figures of replays; those that were played in turn are at the same places."""
    ratios = [_find_median_ms(each) / _find_median_ms(other) for each, other in zip(told, untold, strict=True)]
    sizes = [each.related_bytes for played in told for each in played.records if not each.is_prefetch]
    figures = find_figures([time for played in told for time in played.times])
    untold_figures = find_figures([time for played in untold for time in played.times])
    return {
        "typing_num_keys": figures["num_keys"],
        **{name: figures[name] for name in _SHARED},
        **{f"untold_{name}": untold_figures[name] for name in _SHARED},
        "ghost_ratio": statistics.median(ratios),
        "ghost_ratio_lowest": min(ratios),
        "ghost_ratio_highest": max(ratios),
        "told_requests_share": find_mean(size > 0 for size in sizes),
        "told_request_bytes": statistics.median(sizes),
    }


def _find_median_ms(played: Played) -> float:
    median_ms = find_figures(played.times)["ghost_ms_p50"]
    assert isinstance(median_ms, float)
    return median_ms
