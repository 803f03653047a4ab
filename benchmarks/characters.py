"""The character-level model compared with the paper's own implementation: accuracy and speed.

All methods read the same held-out text with the same model on one thread, in float32, and compute the distribution of
the next byte before each byte. The error is the Jensen-Shannon distance to genlm-bytes with a beam of 128. Speed is in
bytes per second of processor time, because the machine may be shared.

genlm-bytes keeps keys and values between calls, which its CPU backend cannot do by itself. Our model reads known text
ahead, many bytes in one forward pass. In the row "unseen" it gets the text byte by byte.
"""

import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console

from benchmarks.baselines.reference_model import ReferenceModel, Walk
from benchmarks.measures.report import Row, Value, write_report
from inference.characters.assembly import load_character_model
from inference.characters.model import CharacterModel, CoveringSettings
from inference.characters.model_reader import ModelReader
from inference.characters.state import State
from inference.characters.token_string import TokenString
from inference.config import EngineConfig
from inference.model.loader import load_model
from inference.protocol.characters import CoveringKind
from midtoken.installed import find_default_model
from models.training.corpus import iter_held_out

_WIDTH = 8
_REFERENCE_WIDTH = 128
_NUM_REPEATS = 3
_NUM_BYTES = 4000
_CANONICAL = CoveringSettings()

LogRows = npt.NDArray[np.floating[Any]]  # [num_bytes, 257] natural logarithms of distributions


def main() -> None:
    console, text = Console(), _find_text()
    config = EngineConfig(find_default_model(), dtype="float32", max_context_tokens=2048)
    theirs = ReferenceModel(config.model_dir)

    def load() -> CharacterModel:
        """Returns a new model for each measurement, because a model caches parts of the texts that it has read."""
        model = load_character_model(config)
        model.open(b"import this\n").next_log_probs  # noqa: B018  # a model's first pass is slow
        return model

    console.print(f"the reference: genlm-bytes with a beam of {_REFERENCE_WIDTH}")
    reference = theirs.walk_once(text, _REFERENCE_WIDTH)
    walks: dict[str, list[Walk]] = {}
    for name, make, num_repeats in _iter_walks(load, theirs, text):
        console.print(name)
        walks[name] = [make() for _ in range(num_repeats)]
    rows: list[Row] = [_to_row(name, repeats, reference) for name, repeats in walks.items()]
    bits_of_tokens = _measure_bits_of_tokens(config, text)
    rows.append({"covering": "the tokenizer's own tokens", "bits/byte": bits_of_tokens})
    figures = _find_figures(rows) | {"bits_per_byte_tokens": bits_of_tokens}
    write_report("characters", rows, figures)


def _find_text() -> bytes:
    """Returns the beginning of the first held-out file, in the order of paths, that is ASCII and long enough."""
    texts = (file.text for file in iter_held_out() if file.text.isascii() and len(file.text) >= _NUM_BYTES)
    return next(texts)[:_NUM_BYTES].encode()


def _iter_walks(
    load: Callable[[], CharacterModel], theirs: ReferenceModel, text: bytes
) -> Iterator[tuple[str, Callable[[], Walk], int]]:
    """Yields the name of each walk, the walk, and how often to repeat it. Ours and theirs alternate."""
    yield "canonical", lambda: _walk(load(), text, _CANONICAL), _NUM_REPEATS
    yield "canonical, unseen", lambda: _walk(load(), text, _CANONICAL, is_known=False), _NUM_REPEATS
    yield f"beam {_WIDTH}", lambda: _walk(load(), text, CoveringSettings(CoveringKind.BEAM, _WIDTH)), 1
    yield f"genlm {_WIDTH}", lambda: theirs.walk(text, _WIDTH), 1


def _walk(model: CharacterModel, text: bytes, settings: CoveringSettings, is_known: bool = True) -> Walk:
    rows, cpu_s, cpu_start = [], [], time.process_time()
    state = model.open(b"", settings)
    for next_state in _iter_states(state, text, is_known):
        rows.append(state.next_log_probs.astype(np.float32))
        cpu_s.append(time.process_time() - cpu_start)
        state = next_state
    return Walk(text, np.array(rows), np.array(cpu_s))


def _iter_states(state: State, text: bytes, is_known: bool) -> Iterable[State]:
    """Yields the state after each byte of a text that is known from the start, or given byte by byte."""
    if is_known:
        yield from state.walk(text)
    else:
        for byte in text:
            state = state.advance(bytes([byte]))
            yield state


def _to_row(name: str, repeats: Sequence[Walk], reference: Walk) -> Row:
    walk = repeats[0]
    speeds = sorted(repeat.bytes_per_cpu_s for repeat in repeats)
    return {
        "covering": name,
        "bits/byte": walk.bits_per_byte,
        "JS distance": float(find_distances(walk.rows, reference.rows).mean()),
        "bytes/CPU s": statistics.median(speeds),
        "spread": speeds[-1] - speeds[0],
    }


def _measure_bits_of_tokens(config: EngineConfig, text: bytes) -> float:
    """Returns the bits per byte of the tokenizer's own tokens for the text: the paper's baseline."""
    loaded = load_model(config)
    encoder, trie = loaded.tokenizer.encoder, loaded.tokenizer.trie
    ids = [token_id for piece in encoder.split(text.decode()) for token_id in encoder.encode(piece.data)]
    end_ids = sorted(loaded.tokenizer.vocabulary.end_ids)
    reader = ModelReader(loaded.model, trie, end_ids, 2048)
    string = TokenString(loaded.tokenizer.start_ids)
    total = 0.0
    for token_id in ids:
        reader.read([string])
        assert string.log_probs is not None, "it has just been read"
        total += float(string.log_probs[trie.rank[token_id]])
        string.log_probs = None
        string = string.extend([token_id])
    return -total / len(text) / math.log(2)


def _find_figures(rows: Sequence[Row]) -> dict[str, Value]:
    by_name = {row["covering"]: row for row in rows}
    names = {"canonical": "canonical", "canonical_unseen": "canonical, unseen", "beam8": "beam 8", "genlm8": "genlm 8"}
    columns = {"bits_per_byte": "bits/byte", "jsd": "JS distance", "bytes_per_cpu_s": "bytes/CPU s"}
    return {
        f"{figure}_{short}": by_name[name][column]
        for short, name in names.items()
        for figure, column in columns.items()
    }


def find_distances(rows: LogRows, others: LogRows) -> npt.NDArray[np.float64]:
    """[num_bytes]: the Jensen–Shannon distance of each row to its counterpart, from 0 (equal rows) to 1.

    The distance is the square root of the divergence, here to base 2. The paper's tables have the mean distance over
    bytes and do not state the base. Rows are normalized first, so that rounding does not count as a difference.
    Distances below 1e-7 are rounding errors.
    """
    logs = [each - np.logaddexp.reduce(each, axis=-1, keepdims=True) for each in map(np.float64, (rows, others))]
    middle = np.logaddexp(*logs) - np.log(2)
    with np.errstate(invalid="ignore"):  # of bytes with probability zero, which add nothing
        nats = [np.where(np.isneginf(each), 0, np.exp(each) * (each - middle)).sum(axis=-1) for each in logs]
    distances: npt.NDArray[np.float64] = np.sqrt(np.clip(sum(nats) / np.log(4), 0, 1))
    return distances


if __name__ == "__main__":
    main()
