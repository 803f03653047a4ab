"""What a person sees first: suggestions that loop, real code that would count as a loop, and words in front of code."""

import random
import re
from collections.abc import Iterator, Mapping, Sequence

from rich.progress import track

from benchmarks.corpora.cuts import Gap, GapKind, draw_cuts
from benchmarks.corpora.situations import list_situations
from inference.engine.loop_rule import LoopRule
from inference.engine.sink import CompletionEngine, complete
from inference.engine.stopping import build_extent_rule
from inference.protocol.completion import Chunks, CompletionRequest, Extent
from lsp_server.context import Context
from lsp_server.filters import fit
from lsp_server.indentation import write_blanks
from lsp_server.settings import Settings
from models.training.corpus import SourceFile

_REAL_CHARS = 220  # about as many as 64 tokens have
_LOOP = re.compile(r"([^\n]{3,64}?)\1\1|((?:[^\n]*\n){1,8}?)\2\2")


def measure_first_look(
    engine: CompletionEngine, files: Sequence[SourceFile], num_cursors: int, num_cuts: int, num_real: int, seed: int
) -> Mapping[str, float]:
    """Asks in the ordinary situations, at random cursors, and inside of words in front of code."""
    rng = random.Random(seed)
    cursors = [_draw_cursor(files, rng) for _ in range(num_real)]
    situations = list_situations()
    cuts = list(_draw_words(files, num_cuts, seed))
    shown = [(gap, _suggest(engine, gap)) for gap in track([*situations, *cursors[:num_cursors], *cuts], "completing")]
    looping = [(gap, text) for gap, text in shown if loops(gap.prefix, text)]
    print(*(f"loops: {(gap.prefix[-40:], text)!r}" for gap, text in looping), sep="\n")
    words = shown[-len(cuts) :]
    return {
        "situations": len(situations),
        "looping": sum(loops(gap.prefix, text) for gap, text in shown[: len(situations)]),
        "looping_share": round(len(looping) / sum(bool(text) for _, text in shown), 4),
        "real_code_cut_share": round(sum(map(_is_cut, cursors)) / num_real, 5),
        "rest_of_line_cuts": len(cuts),
        "rest_of_line_words_right": round(sum(gap.is_filled_by(text) for gap, text in words) / len(cuts), 4),
        "rest_of_line_right": round(sum(gap.middle == text for gap, text in words) / len(cuts), 4),
    }


def _suggest(engine: CompletionEngine, gap: Gap) -> str:
    """What an editor would show."""
    settings = Settings()
    context = Context(gap.prefix[-settings.max_prefix_bytes :], gap.suffix[: settings.max_suffix_bytes])
    sent = write_blanks(context, "python")
    request = CompletionRequest(sent.prefix, sent.suffix, max_tokens=settings.max_tokens, chunks=Chunks.LINES)
    insertion = fit(complete(engine, request)[0], context)
    return "" if insertion is None else insertion.text


def _draw_cursor(files: Sequence[SourceFile], rng: random.Random) -> Gap:
    """Between two characters, each of which is as likely. The text after the cursor is not there yet."""
    [file] = rng.choices(files, [len(file.text) for file in files])
    at = rng.randrange(len(file.text))
    line_end = file.text.find("\n", at) % (len(file.text) + 1)
    return Gap(GapKind.LINE, file.text[:at], file.text[at:], file.text[line_end:])


def _draw_words(files: Sequence[SourceFile], num_cuts: int, seed: int) -> Iterator[Gap]:
    """Inside of a name, with a word after it on the line."""
    cuts = draw_cuts(files, 4 * num_cuts, 0, seed)
    before_code = [cut for cut in cuts if any(map(str.isalnum, cut.suffix.partition("\n")[0]))]
    return (Gap(GapKind.IDENTIFIER, cut.prefix, cut.run_end, cut.suffix) for cut in before_code[:num_cuts])


def loops(prefix: str, text: str) -> bool:
    """True if characters of a line, or lines, stand in `text` three times in a row, as they do not before."""
    return any(
        any(map(str.isalnum, found[1] or found[2])) and found[0] not in prefix for found in _LOOP.finditer(text + "\n")
    )


def _is_cut(cursor: Gap) -> bool:
    """True if the real text after a cursor, as if it were a completion, would count as a loop."""
    extent = build_extent_rule(Extent.AUTO, cursor.prefix, "")
    rule, after = LoopRule(cursor.prefix, sends_lines=True), cursor.middle[:_REAL_CHARS]
    end = extent.find_end(after)
    return rule.add(after[:end]) is not None or (end is None and rule.find_end_at_limit() is not None)
