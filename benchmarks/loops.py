"""How often completions loop, and how often the loop rule would end real code.

- Real code: held-out files are cut at random cursors, and what follows is read as if it were a completion, for 128
  tokens, and to the end of the block. Whatever the rule ends there is an error.
- Completions: the model writes blocks from random cursors. Each is counted by why it ended. Those that end at
  `max_tokens` are searched for repetitions that the rule has missed: a text that deflates to less than a quarter.
"""

import argparse
import random
import zlib
from contextlib import closing
from pathlib import Path

from rich.progress import track

from benchmarks.measures.report import Row, print_rows, write_report
from inference.config import EngineConfig
from inference.engine.assembly import load_engine
from inference.engine.engine import Engine
from inference.engine.loop_rule import LoopRule
from inference.engine.sink import WaitingSink
from inference.engine.stopping import build_extent_rule
from inference.protocol.completion import CompletionChunk, CompletionRequest, Extent, FinishReason
from models.training.corpus import SourceFile, iter_held_out

_PREFIX_CHARS = 1500
_REAL_CHARS = 512  # about 128 tokens
_BATCH_SIZE = 24
_LOOPING_RATIO = 0.25  # held-out code does not deflate to less


class _Sink(WaitingSink):
    """Also keeps why the completion ended."""

    finish_reason: FinishReason | None = None

    def send(self, chunk: CompletionChunk) -> None:
        self.finish_reason = chunk.finish_reason or self.finish_reason
        super().send(chunk)


def main() -> None:
    options = _parse_options()
    files = list(iter_held_out())
    rng = random.Random(options.seed)
    cursors = [_draw_cursor(files, rng) for _ in range(options.real)]
    num_open = sum(LoopRule().add(after[:_REAL_CHARS]) is not None for _, after in cursors)
    num_blocks = sum(_cuts_block(before, after) for before, after in cursors)
    rows = [
        _build_row("real code, 128 tokens", len(cursors), num_open),
        _build_row("real code, one block", len(cursors), num_blocks),
    ]
    with closing(load_engine(EngineConfig(options.model, max_sequences=_BATCH_SIZE))) as engine:
        prefixes = [before for before, _ in cursors[: options.completions]]
        for temperature in (0.0, 0.6):
            rows.append(_complete(engine, prefixes, options.max_tokens, temperature))
    print_rows("Loops", rows)
    write_report("loops", rows, {"real_ended_128_tokens": num_open, "real_ended_blocks": num_blocks})


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=Path("models/default"))
    parser.add_argument("--real", type=int, default=20_000)
    parser.add_argument("--completions", type=int, default=240)
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def _draw_cursor(files: list[SourceFile], rng: random.Random) -> tuple[str, str]:
    """The text around a cursor; each character of the files is as likely."""
    [file] = rng.choices(files, [len(file.text) for file in files])
    at = rng.randrange(len(file.text))
    return file.text[max(at - _PREFIX_CHARS, 0) : at], file.text[at:]


def _cuts_block(before: str, after: str) -> bool:
    """True if the rule would end the real block, or its first 4,000 characters."""
    end = build_extent_rule(Extent.BLOCK, before, "").find_end(after)
    return LoopRule(before.rpartition("\n")[2]).add(after[:end][:4000]) is not None


def _complete(engine: Engine, prefixes: list[str], max_tokens: int, temperature: float) -> Row:
    sinks = []
    for start in track(range(0, len(prefixes), _BATCH_SIZE), f"completing at temperature {temperature}"):
        batch = [_Sink() for _ in prefixes[start : start + _BATCH_SIZE]]
        for prefix, sink in zip(prefixes[start:], batch, strict=False):
            request = CompletionRequest(
                prefix, max_tokens=max_tokens, extent=Extent.BLOCK, temperature=temperature, seed=1
            )
            engine.submit(request, sink)
        for sink in batch:
            sink.wait()
        sinks += batch
    long = [sink.wait()[0].encode() for sink in sinks if sink.finish_reason is FinishReason.LENGTH]
    looping = [text for text in long if len(zlib.compress(text[-600:])) < _LOOPING_RATIO * len(text[-600:])]
    return _build_row(
        f"completions, temperature {temperature:g}, {max_tokens} tokens",
        len(sinks),
        sum(sink.finish_reason is FinishReason.LOOP for sink in sinks),
        len(looping),
        sum(sink.wait()[1].num_tokens for sink in sinks) / len(sinks),
    )


def _build_row(
    text: str, num_texts: int, num_ended: int, num_missed: int | None = None, mean_tokens: float | None = None
) -> Row:
    return {
        "text": text, "texts": num_texts, "ended as loops": num_ended, "missed": num_missed, "mean tokens": mean_tokens
    }  # fmt: skip


if __name__ == "__main__":
    main()
