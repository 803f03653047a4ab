"""What a person sees first: suggestions that loop, real code that would count as a loop, and words in front of code."""

import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.progress import track

from benchmarks.corpora.cuts import Gap, GapKind, draw_cuts
from benchmarks.measures.report import Figures, find_mean
from inference.brackets import count_faults
from inference.engine.loop_rule import LoopRule
from inference.engine.sink import CompletionEngine, complete
from inference.engine.stopping import build_extent_rule
from inference.protocol.completion import Chunks, CompletionRequest, Extent
from lsp_server.context import Context
from lsp_server.filters import Insertion, fit
from lsp_server.indentation import write_blanks
from lsp_server.settings import Settings
from models.training.corpus import SourceFile, iter_held_out

# Ordinary situations: what a person has written, with the cursor at `▏`. Two blank lines divide them. Nobody chose them
# for what the model writes there, and nobody knows what is missing. Those that were reported stand first.
_SITUATIONS = Path(__file__).parents[1] / "corpora" / "situations.txt"
_NUM_CURSORS = 400  # random ones
_NUM_CUTS = 400  # inside a word with code after it
_NUM_REAL = 20_000  # cursors whose real text is read
_REAL_CHARS = 220  # about as many as 64 tokens have
_LOOP = re.compile(r"([^\n]{3,64}?)\1\1|((?:[^\n]*\n){1,8}?)\2\2")


def measure_first_look(engine: CompletionEngine, seed: int) -> Figures:
    """Asks in the ordinary situations, at random cursors, and inside of words in front of code."""
    rng, files = random.Random(seed), list(iter_held_out())
    places = [each.partition("▏") for each in _SITUATIONS.read_text(encoding="utf-8").rstrip("\n").split("\n\n\n")]
    situations = [Gap(GapKind.LINE, before, "", after + "\n") for before, _, after in places]
    cursors, cuts = [_draw_cursor(files, rng) for _ in range(_NUM_REAL)], list(_draw_words(files, seed))
    asked = [*situations, *cursors[:_NUM_CURSORS], *cuts]
    found = [(gap, _suggest(engine, gap)) for gap in track(asked, "completing")]
    shown = [(gap, insertion.text) for gap, insertion in found]
    unbalanced = [(gap, insertion) for gap, insertion in found if _is_unbalanced(gap, insertion)]
    print(
        *(f"unbalanced: {(gap.prefix[-40:], insertion, gap.suffix[:40])!r}" for gap, insertion in unbalanced), sep="\n"
    )
    looping = [(gap, text) for gap, text in shown if loops(gap.prefix, text)]
    print(*(f"loops: {(gap.prefix[-40:], text)!r}" for gap, text in looping), sep="\n")
    words = shown[-len(cuts) :]
    return {
        "situations": len(situations),
        "looping": sum(loops(gap.prefix, text) for gap, text in shown[: len(situations)]),
        "unbalanced": len(unbalanced),
        "looping_share": len(looping) / sum(bool(text) for _, text in shown),
        "real_code_cut_share": find_mean(map(_is_cut, cursors)),
        "rest_of_line_cuts": len(cuts),
        "rest_of_line_words_right": find_mean(gap.is_filled_by(text) for gap, text in words),
        "rest_of_line_right": find_mean(gap.middle == text for gap, text in words),
    }


def _is_unbalanced(gap: Gap, insertion: Insertion) -> bool:
    """True if more brackets or strings of the cursor's line are open or surplus with the insertion than without it."""
    before, after = gap.prefix[gap.prefix.rfind("\n") + 1 :], gap.suffix.partition("\n")[0]
    with_it = before + insertion.text + after.removeprefix(insertion.replaced_after)
    return bool(after.strip()) and "\n" not in with_it and count_faults(with_it) > count_faults(before + after)


def _suggest(engine: CompletionEngine, gap: Gap) -> Insertion:
    """What an editor would show."""
    settings = Settings()
    context = Context(gap.prefix[-settings.sizes.prefix_bytes :], gap.suffix[: settings.sizes.suffix_bytes])
    sent = write_blanks(context, "python")
    request = CompletionRequest(sent.prefix, sent.suffix, max_tokens=settings.max_tokens, chunks=Chunks.LINES)
    return fit(complete(engine, request)[0], context) or Insertion("")


def _draw_cursor(files: Sequence[SourceFile], rng: random.Random) -> Gap:
    """Between two characters, each of which is as likely. The text after the cursor is not there yet."""
    [file] = rng.choices(files, [len(file.text) for file in files])
    at = rng.randrange(len(file.text))
    line_end = file.text.find("\n", at) % (len(file.text) + 1)
    return Gap(GapKind.LINE, file.text[:at], file.text[at:], file.text[line_end:])


def _draw_words(files: Sequence[SourceFile], seed: int) -> Iterator[Gap]:
    """Inside of a name, with a word after it on the line."""
    cuts = draw_cuts(files, 4 * _NUM_CUTS, 0, seed)
    before_code = [cut for cut in cuts if any(map(str.isalnum, cut.suffix.partition("\n")[0]))]
    return (Gap(GapKind.IDENTIFIER, cut.prefix, cut.run_end, cut.suffix) for cut in before_code[:_NUM_CUTS])


def loops(prefix: str, text: str) -> bool:
    """True if characters of a line, or lines, stand in `text` three times in a row, as they do not before."""
    return any(
        any(map(str.isalnum, found[1] or found[2])) and found[0] not in prefix for found in _LOOP.finditer(text + "\n")
    )


def _is_cut(cursor: Gap) -> bool:
    """True if the real text after a cursor, as if it were a completion, would count as a loop."""
    extent = build_extent_rule(Extent.AUTO, cursor.prefix, "")
    after = cursor.middle[:_REAL_CHARS]
    shown = after[: extent.find_end(after)]
    return LoopRule(cursor.prefix).find_end(shown, len(shown), sends_lines=True) is not None
