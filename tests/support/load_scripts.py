"""What simulated editors send: `benchmarks.measures.load_editors` plays it in processes of their own."""

import math
import random
from collections.abc import Iterator

from benchmarks.measures.load_editors import TimedRequest
from inference.protocol.completion import Chunks, CompletionRequest
from tests.support.chaos_editor import build_texts

_GAP_S = 0.2  # between two keys, the median; the spread is that of `benchmarks.corpora.typist`
_GAP_SPREAD = 0.45
_NUM_KEYS = 200


def build_scripts(num_editors: int, num_keys: int = _NUM_KEYS) -> list[list[TimedRequest]]:
    """A script for each editor, with a text before that is its own."""
    return [[*_build_script(f"editor {number}", number, num_keys)] for number in range(num_editors)]


def _build_script(name: str, seed: int, num_keys: int) -> Iterator[TimedRequest]:
    rng, texts = random.Random(seed), build_texts()
    before = "".join(f"def {rng.choice('abcdefgh')}{number}(value):\n    return value\n\n\n" for number in range(20))
    for _ in range(num_keys):
        request = CompletionRequest(
            before + rng.choice(texts), max_tokens=32, chunks=Chunks.LINES, tenant=name, document=name
        )
        yield TimedRequest(rng.lognormvariate(math.log(_GAP_S), _GAP_SPREAD), request)
