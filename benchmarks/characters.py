"""The character-level model compared with the paper's own implementation: accuracy and speed.

All methods read the same held-out text with the same model on one thread, in float32, and compute the distribution of
the next byte before each byte. The error is the Jensen-Shannon distance to genlm-bytes with a beam of 128. Speed is in
bytes per second of processor time, because the machine may be shared.

The paper's own code, genlm-bytes 0.2.0, runs in an environment of its own, which `make build/genlm/.ready` builds.
`genlm_environment/genlm_bytes.py` says how it is set up, and how the end of a text is represented. It keeps keys and
values between calls, which its CPU backend cannot do by itself. Our model reads known text ahead, many bytes in one
forward pass. In the row "canonical_unseen" it gets the text byte by byte.
"""

import hashlib
import json
import math
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.measures.report import Measured, Row, Value, run_parts
from inference.characters.model import CoveringSettings
from inference.characters.service import load_character_model
from inference.characters.state import State
from inference.characters.token_string import ModelReader, TokenString
from inference.config import EngineConfig
from inference.healing.vocabulary_file import read_vocabulary
from inference.model.loader import load_model
from inference.model_folder import read_object
from inference.protocol.characters import CoveringKind
from midtoken.installed import find_bundled_model
from models.training.corpus import iter_held_out

_WIDTH = 8
_REFERENCE_WIDTH, _SHORT_REFERENCE_WIDTH = 128, 16
_NUM_REPEATS = 3
_NUM_BYTES, _NUM_SHORT_BYTES = 4000, 150

_READY = Path("build/genlm/.ready")
_SCRIPT = Path(__file__).parent / "baselines" / "genlm_environment" / "genlm_bytes.py"
_STORED_WALKS = Path("build/genlm-walks")
_SETTINGS = {
    **{"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"},
    **{"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"},
}

LogRows = npt.NDArray[np.floating[Any]]  # [num_bytes, 257] natural logarithms: 256 bytes, then the end of the text


@dataclass(frozen=True, slots=True)
class Walk:
    """One distribution before each byte of a text."""

    rows: LogRows
    cpu_s: float  # processor time


def main() -> None:
    run_parts("characters", {"coverings": _measure})


def _measure(is_short: bool) -> Iterator[Measured]:
    model_dir = find_bundled_model()
    texts = (file.text for file in iter_held_out() if file.text.isascii() and len(file.text) >= _NUM_BYTES)
    text = next(texts)[: _NUM_SHORT_BYTES if is_short else _NUM_BYTES].encode()
    reference_width = _SHORT_REFERENCE_WIDTH if is_short else _REFERENCE_WIDTH
    config = EngineConfig(model_dir, dtype="float32", max_context_tokens=2048)
    reference = _walk_genlm(model_dir, text, reference_width, _find_stored(model_dir, text, reference_width))
    beam = CoveringSettings(CoveringKind.BEAM, _WIDTH)
    kinds: dict[str, tuple[int, Callable[[], Walk]]] = {  # how often it is repeated
        "canonical": (_NUM_REPEATS, partial(_walk, config, text, CoveringSettings())),
        "canonical_unseen": (_NUM_REPEATS, partial(_walk, config, text, CoveringSettings(), is_known=False)),
        f"beam{_WIDTH}": (1, partial(_walk, config, text, beam)),
        f"genlm{_WIDTH}": (1, partial(_walk_genlm, model_dir, text, _WIDTH)),
    }
    rows, figures = list[Row](), dict[str, Value]({"bits_per_byte_tokens": _measure_bits_of_tokens(config, text)})
    for name, (num_repeats, walk) in kinds.items():
        found = _find_figures([walk() for _ in range(num_repeats)], text, reference)
        rows.append({"covering": name, **found})
        figures |= {f"{figure}_{name}": found[figure] for figure in ("bits_per_byte", "jsd", "bytes_per_cpu_s")}
        yield Measured({**figures}, [*rows])


def _walk(config: EngineConfig, text: bytes, settings: CoveringSettings, is_known: bool = True) -> Walk:
    """With a new model, because a model caches parts of the texts that it has read."""
    model = load_character_model(config)
    model.open(b"import this\n").next_log_probs  # noqa: B018  # a model's first pass is slow
    rows, cpu_start = [], time.process_time()
    state = model.open(b"", settings)
    for next_state in state.walk(text) if is_known else _advance(state, text):
        rows.append(state.next_log_probs.astype(np.float32))
        state = next_state
    return Walk(np.array(rows), time.process_time() - cpu_start)


def _advance(state: State, text: bytes) -> Iterable[State]:
    """Yields the state after each byte of a text that is given byte by byte."""
    for byte in text:
        state = state.advance(bytes([byte]))
        yield state


def _walk_genlm(model_dir: Path, text: bytes, width: int, stored: Path | None = None) -> Walk:
    """genlm-bytes, in a process of its own. `stored`: where an earlier result is, or this one is kept.

    Raises SystemExit if the environment is missing, and RuntimeError with the end of the output if the process fails.
    """
    if not _READY.exists():
        raise SystemExit(f"{_READY} is missing: make {_READY}")
    with tempfile.TemporaryDirectory() as name:  # in which it starts, since a folder `genlm` would hide its package
        path = Path(name) / "walk.npz" if stored is None else stored.absolute()
        if not path.exists():
            vocabulary = read_vocabulary(model_dir, read_object(model_dir / "tokenizer.json"))
            job = {
                "model": str(model_dir.resolve()),
                "end_ids": sorted(vocabulary.end_ids),
                "absent_ids": sorted(vocabulary.special_ids - vocabulary.end_ids),
                "width": width,
                "text": text.decode(),
                "arrays": str(path),
            }
            (Path(name) / "job.json").write_text(json.dumps(job))
            command = [str(_READY.parent.absolute() / "bin/python"), "-E", str(_SCRIPT), "job.json"]
            ended = subprocess.run(
                command, cwd=name, env={**os.environ, **_SETTINGS}, stderr=subprocess.PIPE, text=True
            )
            if ended.returncode:
                raise RuntimeError(f"genlm-bytes failed:\n{ended.stderr[-2000:]}")
        with np.load(path) as read:
            return Walk(read["rows"], float(read["cpu_s"]))


def _find_stored(model_dir: Path, text: bytes, width: int) -> Path:
    """Where the distributions of the wide beam are kept, which takes an hour: by model, text and code."""
    sources = (*sorted(_SCRIPT.parent.glob("*.py")), _SCRIPT.with_name("requirements.txt"))
    contents = [path.read_bytes() for path in (model_dir / "model.safetensors", *sources)]
    _STORED_WALKS.mkdir(parents=True, exist_ok=True)
    return _STORED_WALKS / f"{hashlib.sha256(b''.join([str(width).encode(), text, *contents])).hexdigest()[:16]}.npz"


def _find_figures(repeats: Sequence[Walk], text: bytes, reference: Walk) -> dict[str, Value]:
    rows = repeats[0].rows
    read = rows[np.arange(len(text)), np.frombuffer(text, np.uint8)]
    speeds = [len(text) / each.cpu_s for each in repeats]
    return {
        "bits_per_byte": -float(read.mean(dtype=np.float64)) / math.log(2),
        "jsd": float(find_distances(rows, reference.rows).mean()),
        "bytes_per_cpu_s": statistics.median(speeds),
        "spread": max(speeds) - min(speeds),
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
