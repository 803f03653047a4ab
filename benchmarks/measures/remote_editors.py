"""Editors that type at once in front of one llama-server. Each waits for a key's answer, and types the next."""

import random
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from benchmarks.measures.report import Figures
from inference.engine.engine import Engine
from inference.engine.sink import complete
from inference.protocol.completion import CompletionRequest, Extent

_NUM_EDITORS, _NUM_KEYS, _NUM_SHORT_KEYS, _THINKING_S = 10, 20, 2, 0.05
_CONTEXT_CHARS, _SUFFIX_CHARS, _MAX_TOKENS = 2000, 300, 12

_Ask = Callable[[CompletionRequest], object]


def measure_editors(engine: Engine, ask_server: _Ask, texts: Sequence[str], is_short: bool) -> Figures:
    """Medians for one editor and for ten; and for ten that use `ask_server`, which asks the server itself."""
    texts = [text for text in texts if len(text) > 2 * _CONTEXT_CHARS][: 1 + 2 * _NUM_EDITORS]
    num_keys = _NUM_SHORT_KEYS if is_short else _NUM_KEYS
    one = _find_median_ms(partial(complete, engine), texts[:1], num_keys)
    ten = _find_median_ms(partial(complete, engine), texts[1 : 1 + _NUM_EDITORS], num_keys)
    alone = _find_median_ms(ask_server, texts[1 + _NUM_EDITORS :], num_keys)
    figures = {"one_editor_ms_p50": one, "ten_editors_ms_p50": ten, "ten_editors_server_alone_ms_p50": alone}
    return {**figures, "ten_editors_ratio": ten / one}


def _find_median_ms(ask: _Ask, texts: Sequence[str], num_keys: int) -> float:
    with ThreadPoolExecutor(len(texts)) as pool:
        times_s = [each for some in pool.map(partial(_type, ask, num_keys), range(len(texts)), texts) for each in some]
    return 1e3 * statistics.median(times_s)


def _type(ask: _Ask, num_keys: int, editor: int, text: str) -> list[float]:
    """Types a few characters in the middle of a text. Returns how long each key waited for its answer."""
    start = random.Random(editor).randrange(_CONTEXT_CHARS, len(text) - _NUM_KEYS - _SUFFIX_CHARS)
    times_s = list[float]()
    for end in range(start, start + num_keys):
        request = CompletionRequest(
            text[start - _CONTEXT_CHARS : end],
            suffix=text[start + _NUM_KEYS :][:_SUFFIX_CHARS],
            max_tokens=_MAX_TOKENS,
            extent=Extent.SINGLE_LINE,
            document=str(editor),
            tenant=str(editor),
        )
        asked_at = time.perf_counter()
        ask(request)
        times_s.append(time.perf_counter() - asked_at)
        time.sleep(_THINKING_S)
    return times_s
