"""The paper's own implementation of the character-level model, genlm-bytes 0.2.0, in its own environment.

`make build/genlm/.ready` builds that environment. Each measurement runs `genlm_environment/genlm_bytes.py` in its own
process with one thread. That file explains the forms, and how the end of a text is represented.
"""

import hashlib
import json
import math
import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trie_cache.vocabulary import Vocabulary

_READY = Path("build/genlm/.ready")
_SCRIPT = Path(__file__).parent / "genlm_environment" / "genlm_bytes.py"
_STORED_WALKS = Path("build/genlm-walks")
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
_OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}


class Form(StrEnum):
    """How genlm-bytes is set up."""

    SHIPPED = "shipped"
    TUNED = "tuned"  # with its own options
    KEPT = "kept"  # tuned, with keys and values kept between calls, which its CPU backend cannot do


@dataclass(frozen=True, slots=True)
class FirstDistribution:
    """How long it takes to compute the distribution after a context, with a loaded model and a built index."""

    form: Form
    num_bytes: int
    num_read: int  # bytes; fewer if the context is longer than the window
    ms: float | None  # None: not within the time limit
    cpu_ms: float | None
    kv_there_ms: float | None  # if the keys and values of the context are there already; None if none are kept
    row: npt.NDArray[np.float32] | None  # [257] as in Walk


@dataclass(frozen=True, slots=True)
class IndexCost:
    """How long it takes to build the index of genlm-bytes over a vocabulary, and how large it is."""

    build_s: float
    build_cpu_s: float
    memory_mb: float  # the growth of the process
    peak_mb: float
    masses_ms: float  # one pass over the index; needed each time a member of the beam completes a token


@dataclass(frozen=True, slots=True)
class Walk:
    """One distribution before each byte of a text. If a time limit was reached, the last bytes have none."""

    text: bytes
    rows: npt.NDArray[np.float32]  # [num_bytes, 257] natural logarithms: 256 bytes, then the end of the text
    cpu_s: npt.NDArray[np.float64]  # [num_bytes] processor time from the start of the text to each byte
    wall_s: npt.NDArray[np.float64]  # [num_bytes] wall time, likewise
    failure: str | None = None  # why the rows end, if it is an error

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def bits_per_byte(self) -> float:
        """Mean surprisal; infinite after a failure."""
        if self.failure is not None:
            return math.inf
        read = np.frombuffer(self.text, np.uint8)[: len(self)]
        return -float(self.rows[np.arange(len(self)), read].mean(dtype=np.float64)) / math.log(2)

    @property
    def bytes_per_cpu_s(self) -> float:
        return len(self) / float(self.cpu_s[-1])

    @property
    def bytes_per_wall_s(self) -> float:
        return len(self) / float(self.wall_s[-1])

    def cut(self, num_bytes: int) -> "Walk":
        """Returns the walk over the first `num_bytes`, for comparison with one that ended there."""
        failure = self.failure if num_bytes > len(self) else None
        rows, cpu_s, wall_s = self.rows[:num_bytes], self.cpu_s[:num_bytes], self.wall_s[:num_bytes]
        return replace(self, text=self.text[:num_bytes], rows=rows, cpu_s=cpu_s, wall_s=wall_s, failure=failure)


class ReferenceModel:
    """genlm-bytes over the model in a folder."""

    def __init__(self, model_dir: Path) -> None:
        vocabulary = Vocabulary.from_folder(model_dir)
        self._model_dir = model_dir.resolve()
        self._common = {
            "model": str(self._model_dir),
            "end_ids": sorted(vocabulary.end_ids),
            "absent_ids": sorted(vocabulary.special_ids - vocabulary.end_ids),
        }

    def walk(
        self, text: bytes, width: int, form: Form = Form.KEPT, threshold: float = 0.0, limit_s: float = 7200
    ) -> Walk:
        """Returns the walk over `text` with a beam of `width`, or over the part that is read within `limit_s`."""
        job = {**self._common, "kind": "walk", "form": form, "width": width, "threshold": threshold, "limit_s": limit_s}
        with tempfile.TemporaryDirectory() as folder:
            arrays = Path(folder, "walk.npz")
            result = _run({**job, "arrays": str(arrays)}, text, Path(folder))
            with np.load(arrays) as read:
                return Walk(text, read["rows"], read["cpu_s"], read["wall_s"], result["failure"])

    def walk_once(self, text: bytes, width: int) -> Walk:
        """Returns `walk`, or the stored result of an earlier one with the same model, text and code.

        For the wide beam that others are compared with. It takes an hour, and only its distributions are used.
        """
        digest = hashlib.sha256(f"{width}, {self._common['end_ids']}, {self._common['absent_ids']}".encode() + text)
        sources = (*sorted(_SCRIPT.parent.glob("*.py")), _SCRIPT.with_name("requirements.txt"))
        for path in (self._model_dir / "model.safetensors", *sources):
            digest.update(path.read_bytes())
        path = _STORED_WALKS / f"{digest.hexdigest()[:16]}.npz"
        if not path.exists():
            walk = self.walk(text, width)
            if walk.failure is not None or len(walk) < len(text):
                return walk
            path.parent.mkdir(parents=True, exist_ok=True)
            np.savez(path, rows=walk.rows, cpu_s=walk.cpu_s, wall_s=walk.wall_s)
        with np.load(path) as read:
            return Walk(text, read["rows"], read["cpu_s"], read["wall_s"])

    def time_first(
        self, text: bytes, lengths: Sequence[int], form: Form, width: int = 8, limit_s: float = 120
    ) -> tuple[FirstDistribution, ...]:
        """Returns, for each of the increasing `lengths`, the distribution after that many bytes of `text`."""
        job = {**self._common, "kind": "first", "form": form, "width": width, "threshold": 0.0, "limit_s": limit_s}
        with tempfile.TemporaryDirectory() as folder:
            found = _run({**job, "lengths": list(lengths), "num_repeats": 7, "num_spare_ids": 8}, text, Path(folder))
        return tuple(
            FirstDistribution(
                form,
                one["num_bytes"],
                one["num_read"],
                one["ms"],
                one["cpu_ms"],
                one["kv_there_ms"],
                None if one["row"] is None else np.array(one["row"], np.float32),
            )
            for one in found["measured"]
        )


def measure_index(token_bytes: Sequence[bytes]) -> IndexCost:
    """Measures the index over tokens, given in the order of their ids, in a new process."""
    tokens = json.dumps([token.decode("latin-1") for token in token_bytes]).encode()
    with tempfile.TemporaryDirectory() as folder:
        return IndexCost(**_run({"kind": "index", "num_repeats": 9}, tokens, Path(folder)))


def _run(job: dict[str, Any], given: bytes, folder: Path) -> dict[str, Any]:
    """Runs a job on the bytes `given` and returns its result; Any, because it is JSON.

    The process starts in `folder`, because genlm-bytes is a namespace package that a folder named `genlm` would hide.
    Raises SystemExit if the environment is missing, and RuntimeError with the end of the output if the job fails.
    """
    if not _READY.exists():
        raise SystemExit(f"{_READY} is missing: make {_READY}")
    text, result, path = folder / "given", folder / "result.json", folder / "job.json"
    text.write_bytes(given)
    path.write_text(json.dumps({**job, "given": str(text), "result": str(result)}))
    command = [str(_READY.parent.absolute() / "bin/python"), "-E", str(_SCRIPT), str(path)]
    environment = {**os.environ, **_ONE_THREAD, **_OFFLINE}
    ended = subprocess.run(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True)
    if ended.returncode:
        raise RuntimeError(f"genlm-bytes failed at {job['kind']}:\n{ended.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(result.read_text())
    return found
