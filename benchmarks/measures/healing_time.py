"""How long healing takes, by itself: the heal point of the whole text before a cursor, and the covering."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from benchmarks.corpora.sized_files import SizedFile, find_sized_files
from benchmarks.measures.report import Row, find_percentile
from inference.healing.covering import build_covering
from inference.healing.heal_memory import HealMemory
from inference.healing.loaded_tokenizer import load_text_encoder
from inference.healing.text_encoder import TextEncoder
from models.training.corpus import iter_held_out
from trie_cache.trie import Trie
from trie_cache.vocabulary import Vocabulary

_NUM_TOKENS = 36_000
_NUM_KEYS = 1_000  # at each place; each inserts the next character of the text
_NUM_REPEATS = 5  # the fastest counts, because other programs may be running
_PLACES = {"end": 1.0, "middle": 0.5, "start": 0.0}  # where the keys insert: which part of the text is before them


@dataclass(frozen=True, slots=True)
class HealingTimes:
    """The times at one place, in milliseconds."""

    place: str
    cold: Sequence[float]  # for the text before the first key, of which nothing is remembered: each repeat
    keys: Sequence[float]  # the text was seen one key ago: for each key the fastest of the repeats

    def build_row(self) -> Row:
        """The times as a row of the printed table."""
        return {
            "keys at the": self.place,
            "cold ms": find_percentile(self.cold, 50),
            "key ms": find_percentile(self.keys, 50),
            "99 of 100 ms": find_percentile(self.keys, 99),
            "slowest ms": max(self.keys),
        }


def measure_healing(tokenizer_dir: Path, vocabulary: Vocabulary) -> list[HealingTimes]:
    """Types into a text of about 36,000 tokens, at its end, in its middle and at its start."""
    [file] = _find_text(tokenizer_dir)
    encoder, trie = load_text_encoder(tokenizer_dir), Trie.build(vocabulary)
    found = []
    for place, share in _PLACES.items():
        start = int(share * (len(file.text) - _NUM_KEYS))
        prefixes = [file.text[:end] for end in range(start, start + _NUM_KEYS + 1)]
        repeats = [_time_each(encoder, trie, prefixes) for _ in range(_NUM_REPEATS)]
        cold = [times[0] for times in repeats]
        keys = [min(times) for times in zip(*(times[1:] for times in repeats), strict=True)]
        found.append(HealingTimes(place, cold, keys))
    return found


def build_healing_figures(times: Sequence[HealingTimes]) -> dict[str, float | bool | None]:
    """99 of 100 keys, of all places together, and the longest text if nothing of it is remembered."""
    return {
        "healing_ms_p99_152k": find_percentile([key for each in times for key in each.keys], 99),
        "healing_cold_ms_p50_152k": max(find_percentile(each.cold, 50) or 0.0 for each in times),
    }


def _find_text(tokenizer_dir: Path) -> list[SizedFile]:
    tokenizer = Tokenizer.from_file(str(tokenizer_dir / "tokenizer.json"))
    return find_sized_files(
        iter_held_out(), (_NUM_TOKENS,), 1, lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)
    )


def _time_each(encoder: TextEncoder, trie: Trie, prefixes: Sequence[str]) -> list[float]:
    """Milliseconds for each text, for a client of whom nothing is remembered at first."""
    memory = HealMemory(encoder)
    times = []
    for prefix in prefixes:
        started_at = time.perf_counter()
        build_covering(encoder, trie, memory.find_heal_point(prefix))
        times.append(1e3 * (time.perf_counter() - started_at))
    return times
