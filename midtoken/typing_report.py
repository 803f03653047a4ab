"""What the ghost text of models is worth on somebody's own files: a table with bars, also by confidence."""

import argparse
import asyncio
import os
import random
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from inference.protocol.completion import Healing
from lsp_server.context import clean
from lsp_server.privacy.exclusion import Policy
from lsp_server.settings import Settings
from midtoken.connection import open_connection, prepare_server, show_waiting
from midtoken.server_arguments import UsageError, may_be_remote, number_from
from midtoken.typing_trial import Line, Trial, draw_lines, run_trials

_SEED = 1
_MAX_FILES, _MAX_FILE_BYTES = 1_000, 400_000
_MAX_S = 600.0  # for all models
_IDLE_S = 30.0  # then a server that was tried ends
_DEFAULT = Settings().confidence
_CONFIDENCES = (0.0, 0.2, 0.3, _DEFAULT, 0.5, 0.6)
_BAR_CELLS = 40
_COLUMNS = {  # of the table, by the name of the figure: the heading, the factor, and the form
    "saved": ("keys saved, %", 100, ".1f"),
    "saved_word": ("by word, too, %", 100, ".1f"),
    "wrong_chars_per_key": ("wrong chars a key", 1, ".1f"),
    "shown_right_share": ("wholly right, %", 100, ".0f"),
    "calibration_error": ("calibration error", 1, ".3f"),
    "tokens_per_request": ("tokens a request", 1, ".1f"),
    "ms": ("ms to text", 1, ".0f"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that `print_report` reads."""
    parser.add_argument("--on", type=Path, metavar="FOLDER", help="type lines of the files in this folder, and count")
    parser.add_argument("--compare", nargs="+", default=[], metavar="NAME", help="do so with these models, too")
    parser.add_argument("--files", default="*.py", metavar="PATTERN", help="which files (default: %(default)s)")
    parser.add_argument(
        "--lines",
        type=number_from(1, 100_000),
        default=60,
        help="how many, at most ten minutes (default: %(default)s)",
    )
    parser.add_argument(
        "--plot", type=Path, metavar="FILE.svg", help="type at other confidences, too, and draw the table"
    )


async def print_report(options: argparse.Namespace) -> None:
    """Tries the models that the options name on the files of a folder. Raises UsageError or as `open_connection` does.

    A file that a rule excludes is left out, and secrets are replaced, as in an editor.
    """
    texts = await asyncio.to_thread(_read_texts, options.on, options.files)
    lines = draw_lines(texts, 2 * options.lines, _SEED)
    if len(lines) < 2:
        raise UsageError(f"{options.on} has too few lines in files {options.files} that may be sent")
    if options.plot:
        _write_plot(options.plot, "")  # what cannot be written is refused before anything runs
    models = await _prepare_models(options)
    trials = {name: await _try(each, name, lines, _MAX_S / len(models)) for name, each in models.items()}
    table = build_table(trials)
    console = Console(width=Console(width=1_000).measure(table).maximum, highlight=False, record=True)
    console.print(table)
    if options.plot:
        _write_plot(options.plot, draw_plot(console))


async def _prepare_models(options: argparse.Namespace) -> dict[str, argparse.Namespace]:
    """Returns the options for each model, after a look at all of them."""
    names = dict.fromkeys([options.name, *options.compare])
    models = {name: argparse.Namespace(**vars(options) | {"model": find_model_option(name)}) for name in names}
    with show_waiting() as on_download:
        for each in models.values():
            await prepare_server(each, on_download)
    return models


def _write_plot(path: Path, plot: str) -> None:
    try:
        path.write_text(plot, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {path} of --plot: {error.strerror}") from None


def _read_texts(folder: Path, pattern: str) -> list[str]:
    """Returns the texts of files that may be sent."""
    if not folder.is_dir():
        raise UsageError(f"{folder} is no folder")
    paths = [each for each in sorted(folder.absolute().rglob("*")) if each.match(f"*/{pattern}") and each.is_file()]
    paths = random.Random(_SEED).sample(paths, min(len(paths), _MAX_FILES))
    languages = {path.as_uri(): "" for path in paths if path.stat().st_size <= _MAX_FILE_BYTES}
    excluded = Policy(os.environ).find_exclusions(languages, (), [folder.absolute().as_uri()])
    return [*_decode(path for path in paths if excluded.get(path.as_uri(), "too large") is None)]


def _decode(paths: Iterable[Path]) -> Iterable[str]:
    for path in paths:
        try:
            yield clean(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError):
            continue


async def _try(options: argparse.Namespace, name: str, lines: Sequence[Line], max_s: float) -> list[Trial]:
    """Every second line is typed. In the others, a cursor is placed."""
    confidences = (_DEFAULT, 0.0, *(_CONFIDENCES[1:] if options.plot else ()))
    wanted = [(Healing.EXACT, each) for each in dict.fromkeys(confidences)]
    wanted += [(Healing.NONE, _DEFAULT), (Healing.NONE, 0.0)]
    async with open_connection(options, _IDLE_S) as connection:
        trials = [
            Trial.build(connection, may_be_remote(options), healing=str(healing), confidence=confidence)
            for healing, confidence in wanted
        ]
        with Progress(console=Console(stderr=True)) as progress:
            task, ends_s = progress.add_task(name, total=len(lines) / 2), time.monotonic() + max_s

            def on_line() -> bool:
                progress.advance(task)
                return time.monotonic() < ends_s

            await run_trials(trials, lines[::2], lines[1::2], _SEED, on_line)
    return trials


def find_model_option(name: str) -> str | None:
    """Returns what `--model` takes for a name; None for the bundled model."""
    return None if name == "bundled" else name


def build_table(trials: Mapping[str, Sequence[Trial]]) -> Table:
    table = Table("model", "healing, confidence")
    for heading, _, _ in _COLUMNS.values():
        table.add_column(heading, justify="right")
    table.add_column("")
    for name, some in trials.items():
        for each in some:
            figures, bar = each.list_figures(), "━" * round(_BAR_CELLS * each.by_tab.saved)
            table.add_row(Text(name), each.name, *(_format(figures[figure], figure) for figure in _COLUMNS), bar)
    return table


def draw_plot(console: Console) -> str:
    """Returns what was printed as SVG, without the font that rich would have a browser load from elsewhere."""
    return re.sub("@font-face {.*?}", "", console.export_svg(title="midtoken"), flags=re.DOTALL)


def _format(value: float | None, figure: str) -> str:
    _, factor, form = _COLUMNS[figure]
    return "–" if value is None else f"{factor * value:{form}}"
