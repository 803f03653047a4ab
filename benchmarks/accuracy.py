"""How often a completion is right, by healing strategy.

Cursors are drawn inside identifiers, operators, runs of blanks and words of strings in held-out files. A completion is
right if it begins with exactly the rest of that identifier, operator, run or word. Decoding is greedy, and the model
gets the prefix only. All strategies complete at one cursor before the next cursor is used.

A second table has cursors inside identifiers after one to eight typed characters, equally many of each: on and off the
edges of the finished text's tokens, and by the number of typed characters.
"""

import math
import statistics
from collections import defaultdict
from contextlib import closing

import torch
import transformers
from rich.progress import track
from tokenizers import Tokenizer

from benchmarks.corpora.cuts import MAX_OFFSET, Cut, draw_cuts, draw_cuts_by_offset
from benchmarks.measures.report import Row, Value, find_percent, write_report
from inference.config import EngineConfig
from inference.engine.assembly import load_engine
from inference.engine.sink import CompletionEngine, complete
from inference.protocol.completion import CompletionRequest, CompletionStats, Extent, Healing
from midtoken.installed import find_default_model
from models.training.corpus import iter_held_out
from models.training.evaluation import measure_bits_per_byte
from tests.support.sinks import submit

_NUM_IDENTIFIERS, _NUM_OTHERS, _NUM_EACH_OFFSET = 500, 210, 150
_SEED = 1
_HEALINGS = (Healing.NONE, Healing.SINGLE, Healing.GREEDY, Healing.EXACT)
_OFFSET_HEALINGS = (Healing.NONE, Healing.GREEDY, Healing.EXACT)
_MAX_TOKENS = 12
_CONTEXT_CHARS = 2000
_SUFFIX_CHARS = 100  # enough for the tokens around the cursor


def main() -> None:
    bits = _measure_bits()
    with closing(load_engine(EngineConfig(find_default_model(), num_threads=1))) as engine:
        rows, offset_rows = _measure(engine), _measure_by_offset(engine)
    figures: dict[str, Value] = {"num_cuts": _NUM_IDENTIFIERS + _NUM_OTHERS, "bits_per_byte": bits}
    figures |= {
        f"{name}_{row['healing']}": row[name] for row in rows for name in ("identifier", "other", "forwards", "ms")
    }
    by_name = {row["cursors"]: row for row in offset_rows}
    figures |= {f"{name}_{each}": by_name[name][each] for name in ("edge", "inside") for each in ("exact", "none")}
    figures |= {f"all_{each}": by_name["all"][each] for each in ("exact", "greedy")}
    write_report("accuracy", [*rows, *offset_rows], figures)


def _measure_bits() -> float:
    folder = find_default_model()
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    return measure_bits_per_byte(model.eval(), tokenizer.backend_tokenizer)


def _measure(engine: CompletionEngine) -> list[Row]:
    """A row for each strategy. All complete at a cursor before the next one is used."""
    solved: dict[tuple[Healing, bool], list[bool]] = defaultdict(list)  # by strategy, and whether in an identifier
    costs: dict[Healing, list[CompletionStats]] = defaultdict(list)
    for cut in track(draw_cuts(iter_held_out(), _NUM_IDENTIFIERS, _NUM_OTHERS, _SEED), "completing"):
        for healing in _HEALINGS:
            text, stats = complete(engine, _build_request(cut, healing))
            solved[healing, cut.kind == "identifier"].append(cut.is_solved_by(text))
            costs[healing].append(stats)
    return [
        {
            "healing": str(healing),
            "identifier": find_percent(solved[healing, True]),
            "± (95 %)": 196 * math.sqrt(0.25 / _NUM_IDENTIFIERS),
            "other": find_percent(solved[healing, False]),
            "forwards": statistics.mean(stats.num_healing_forwards or 1 for stats in costs[healing]),
            "ms": statistics.median(stats.total_ms for stats in costs[healing]),
        }
        for healing in _HEALINGS
    ]


def _build_request(cut: Cut, healing: Healing) -> CompletionRequest:
    """A request for the rest of the cut's run, which does not know the text after the cursor."""
    prefix = cut.find_context(_CONTEXT_CHARS)
    return CompletionRequest(prefix, max_tokens=_MAX_TOKENS, healing=healing, extent=Extent.SINGLE_LINE)


def _measure_by_offset(engine: CompletionEngine) -> list[Row]:
    """The right completions of each strategy: at all cursors, on and off token edges, and by the characters typed."""
    tokenizer = Tokenizer.from_file(str(find_default_model() / "tokenizer.json"))
    solved: dict[tuple[str, Healing], list[bool]] = defaultdict(list)
    cuts = draw_cuts_by_offset(iter_held_out(), _NUM_EACH_OFFSET, _SEED)
    for place, cut in enumerate(track(cuts, "completing by offset")):  # by all strategies, since nothing is timed here
        groups = ("all", "edge" if _is_on_edge(tokenizer, cut) else "inside", f"after {place // _NUM_EACH_OFFSET + 1}")
        sinks = {healing: submit(engine, _build_request(cut, healing)) for healing in _OFFSET_HEALINGS}
        for healing, sink in sinks.items():
            for name in groups:
                solved[name, healing].append(cut.is_solved_by(sink.wait().text))
    names = ("all", "edge", "inside", *(f"after {offset}" for offset in range(1, MAX_OFFSET + 1)))
    counts = {name: len(solved[name, Healing.EXACT]) for name in names}
    return [
        {
            "cursors": name,
            "number": number,
            "share": 100 * number / len(cuts),
            **{str(healing): find_percent(solved[name, healing]) for healing in _OFFSET_HEALINGS},
            "± (95 %)": 196 * math.sqrt(0.25 / max(1, number)),
        }
        for name, number in counts.items()
    ]


def _is_on_edge(tokenizer: Tokenizer, cut: Cut) -> bool:
    context = cut.find_context(_CONTEXT_CHARS)
    finished = context + cut.run_end + cut.suffix[:_SUFFIX_CHARS]
    return any(end == len(context) for _, end in tokenizer.encode(finished, add_special_tokens=False).offsets)


if __name__ == "__main__":
    main()
