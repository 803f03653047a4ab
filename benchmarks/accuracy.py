"""How often a completion is right, by healing strategy.

Cursors are drawn inside identifiers, operators, runs of blanks and words of strings in held-out files. A completion is
right if it begins with exactly the rest of that identifier, operator, run or word. Decoding is greedy, and the model
gets the prefix only. All strategies complete at one cursor before the next cursor is used.

A second table is about cursors inside identifiers after one to eight typed characters, equally many of each, on and off
the edges of the finished text's tokens. The third says what a prior for "the text stopped here" would gain there.
"""

import argparse
import math
import statistics
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import transformers
from rich.progress import track
from tokenizers import Tokenizer

from benchmarks.corpora.cuts import draw_cuts, draw_cuts_by_offset
from benchmarks.measures.cursor_offsets import build_offset_rows, build_prior_rows, build_request, iter_outcomes
from benchmarks.measures.report import Row, find_processor, print_rows, write_report
from inference.config import EngineConfig
from inference.engine.assembly import load_engine
from inference.engine.sink import complete
from inference.protocol.completion import CompletionStats, Healing
from models.training.corpus import iter_held_out
from models.training.evaluation import measure_bits_per_byte

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_HEALINGS = (Healing.NONE, Healing.SINGLE, Healing.GREEDY, Healing.EXACT)


def main() -> None:
    options = _parse_options()
    bits = _measure_bits(options.model)
    cuts = draw_cuts(iter_held_out(), options.identifiers, options.others, options.seed)
    engine = load_engine(EngineConfig(options.model, device=options.device, num_threads=options.threads))
    solved: dict[tuple[Healing, str], list[bool]] = defaultdict(list)
    costs: dict[Healing, list[CompletionStats]] = defaultdict(list)
    for cut in track(cuts, "completing"):
        for healing in _HEALINGS:
            text, stats = complete(engine, build_request(cut, healing))
            solved[healing, cut.kind].append(cut.is_solved_by(text))
            costs[healing].append(stats)
    offset_cuts = draw_cuts_by_offset(iter_held_out(), options.each_offset, options.seed)
    tokenizer = Tokenizer.from_file(str(options.model / "tokenizer.json"))
    outcomes = list(iter_outcomes(engine, tokenizer, track(offset_cuts, "completing by offset")))
    engine.close()
    rows = [_build_row(healing, solved, costs[healing]) for healing in _HEALINGS]
    print_rows(f"Right rest of the run, {len(cuts)} cursors, {bits:.3f} bits/byte", rows)
    figures: dict[str, float | bool | None] = {"num_cuts": len(cuts), "bits_per_byte": bits}
    for healing, row in zip(_HEALINGS, rows, strict=True):
        for name in ("identifier", "other", "forwards", "ms"):
            figures[f"{name}_{healing}"] = _number(row[name])
    offset_rows, prior_rows = build_offset_rows(outcomes), build_prior_rows(outcomes)
    print_rows(f"Right rest of the identifier, %, by typed characters, {len(outcomes)} cursors", offset_rows)
    print_rows("Right, %, by the log weight of the tokens that begin at the cursor", prior_rows)
    figures |= _find_edge_figures(offset_rows)
    device = find_processor() if options.device == "cpu" else options.device
    write_report("accuracy", [*rows, *offset_rows, *prior_rows], figures, _draw(rows), device)


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=Path("models/default"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--identifiers", type=int, default=500)
    parser.add_argument("--others", type=int, default=210)
    parser.add_argument("--each-offset", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def _measure_bits(model_dir: Path) -> float:
    model = transformers.AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32, local_files_only=True)
    tokenizer = transformers.AutoTokenizer.from_pretrained(model_dir, local_files_only=True)
    return measure_bits_per_byte(model.eval(), tokenizer.backend_tokenizer)


def _build_row(healing: Healing, solved: dict[tuple[Healing, str], list[bool]], costs: list[CompletionStats]) -> Row:
    by_kind = {kind: marks for (strategy, kind), marks in solved.items() if strategy is healing}
    others = [mark for kind, marks in by_kind.items() if kind != "identifier" for mark in marks]
    times = [stats.total_ms for stats in costs]
    quartiles = statistics.quantiles(times, n=4)
    return {
        "healing": str(healing),
        "identifier": _percent(by_kind["identifier"]),
        "± (95 %)": 196 * math.sqrt(0.25 / len(by_kind["identifier"])),
        "other": _percent(others),
        **{kind: _percent(marks) for kind, marks in by_kind.items() if kind != "identifier"},
        "forwards": statistics.mean(stats.num_healing_forwards or 1 for stats in costs),
        "ms": statistics.median(times),
        "ms, middle half": quartiles[2] - quartiles[0],
        "forwards in all": statistics.mean(stats.num_forwards for stats in costs),
        "tree nodes": statistics.mean(stats.num_tree_nodes for stats in costs),
    }


def _find_edge_figures(offset_rows: list[Row]) -> dict[str, float | bool | None]:
    by_name = {row["cursors"]: row for row in offset_rows}
    wanted = (("edge", "exact"), ("edge", "none"), ("inside", "exact"), ("inside", "none"), ("all", "exact"))
    return {f"{name}_{healing}": _number(by_name[name][healing]) for name, healing in (*wanted, ("all", "greedy"))}


def _percent(marks: list[bool]) -> float:
    return 100 * sum(marks) / len(marks)


def _number(value: object) -> float:
    assert isinstance(value, float | int)
    return round(float(value), 3)


def _draw(rows: list[Row]) -> "Figure":
    from matplotlib.figure import Figure  # here, because only drawing needs it

    figure = Figure(figsize=(6, 3.2))
    axes = figure.add_subplot()
    names = [str(row["healing"]) for row in rows]
    for offset, kind in ((-0.2, "identifier"), (0.2, "other")):
        heights = [_number(row[kind]) for row in rows]
        bars = axes.bar([index + offset for index in range(len(rows))], heights, width=0.38, label=kind)
        axes.bar_label(bars, fmt="%.0f")
    axes.set_xticks(range(len(rows)), names)
    axes.set_ylabel("rest of the run right, %")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return figure


if __name__ == "__main__":
    main()
