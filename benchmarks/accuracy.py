"""How often a completion is right, by healing strategy.

Cursors are drawn inside identifiers, operators, runs of blanks and words of strings in held-out files. A completion is
right if it begins with exactly the rest of that identifier, operator, run or word. Decoding is greedy, and the model
gets the prefix only. All strategies complete at one cursor before the next cursor is used.

`offsets` has cursors inside identifiers after one to eight typed characters, equally many of each: on and off the edges
of the finished text's tokens, and by the number of typed characters.
"""

from collections import defaultdict

import torch
import transformers
from tokenizers import Tokenizer

from benchmarks.corpora.cuts import MAX_OFFSET, Cut, draw_cuts, draw_cuts_by_offset
from benchmarks.measures.report import Figures, Measured, Row, find_percent, run_parts, track
from inference.protocol.completion import Healing
from midtoken import Model, load
from midtoken.installed import find_bundled_model
from models.training.corpus import iter_held_out
from models.training.evaluation import measure_bits_per_byte

_NUM_IDENTIFIERS, _NUM_OTHERS, _NUM_EACH_OFFSET = 500, 210, 150
_NUM_SHORT, _NUM_SHORT_FILES = 6, 2
_SEED = 1
_HEALINGS = (Healing.NONE, Healing.SINGLE, Healing.GREEDY, Healing.EXACT)
_OFFSET_HEALINGS = (Healing.NONE, Healing.GREEDY, Healing.EXACT)
_MAX_TOKENS = 12  # more than the rest of a name has
_CONTEXT_CHARS = 2000
_SUFFIX_CHARS = 100  # enough for the tokens around the cursor


def main() -> None:
    run_parts("accuracy", {"bits": _measure_bits, "kinds": _measure_kinds, "offsets": _measure_offsets})


def _measure_bits(is_short: bool) -> Figures:
    folder = find_bundled_model()
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    files = [*iter_held_out()][: _NUM_SHORT_FILES if is_short else None]
    return {"bits_per_byte": measure_bits_per_byte(model.eval(), tokenizer.backend_tokenizer, track(files, "reading"))}


def _measure_kinds(is_short: bool) -> Figures:
    solved: dict[str, list[bool]] = defaultdict(list)
    cuts = draw_cuts(iter_held_out(), *((_NUM_SHORT,) * 2 if is_short else (_NUM_IDENTIFIERS, _NUM_OTHERS)), _SEED)
    with load(num_threads=1) as model:
        for cut in track(cuts, "completing"):
            for healing in _HEALINGS:
                kind = "identifier" if cut.kind == "identifier" else "other"
                solved[f"{kind}_{healing}"].append(_is_solved(model, cut, healing))
    return {name: find_percent(marks) for name, marks in solved.items()}


def _is_solved(model: Model, cut: Cut, healing: Healing) -> bool:
    """Completes the rest of the cut's run, without the text after the cursor."""
    prefix = cut.find_context(_CONTEXT_CHARS)
    found = model.complete(prefix, strategy=healing, max_tokens=_MAX_TOKENS, extent="single_line")
    return cut.is_solved_by(found.text)


def _measure_offsets(is_short: bool) -> list[Measured]:
    """The right completions of each strategy: at all cursors, on and off token edges, and by the characters typed."""
    tokenizer = Tokenizer.from_file(str(find_bundled_model() / "tokenizer.json"))
    solved: dict[str, dict[Healing, list[bool]]] = defaultdict(lambda: defaultdict(list))
    num_each = _NUM_SHORT if is_short else _NUM_EACH_OFFSET
    cuts = draw_cuts_by_offset(iter_held_out(), num_each, _SEED)
    with load(num_threads=1) as model:
        for place, cut in enumerate(track(cuts, "completing")):
            groups = ("all", "edge" if _is_on_edge(tokenizer, cut) else "inside", f"after {place // num_each + 1}")
            for healing in _OFFSET_HEALINGS:
                is_solved = _is_solved(model, cut, healing)
                for name in groups:
                    solved[name][healing].append(is_solved)
    rows: list[Row] = [
        {
            "cursors": name,
            "share": 100 * len(solved[name][Healing.EXACT]) / len(cuts),
            **{str(healing): find_percent(solved[name][healing]) for healing in _OFFSET_HEALINGS},
        }
        for name in ("all", "edge", "inside", *(f"after {offset}" for offset in range(1, MAX_OFFSET + 1)))
    ]
    figures = {f"{row['cursors']}_{each}": row[each] for row in rows[:3] for each in ("share", *_OFFSET_HEALINGS)}
    return [Measured(figures, rows)]


def _is_on_edge(tokenizer: Tokenizer, cut: Cut) -> bool:
    context = cut.find_context(_CONTEXT_CHARS)
    finished = context + cut.run_end + cut.suffix[:_SUFFIX_CHARS]
    return any(end == len(context) for _, end in tokenizer.encode(finished, add_special_tokens=False).offsets)


if __name__ == "__main__":
    main()
