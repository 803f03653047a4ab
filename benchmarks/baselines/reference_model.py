"""The paper's own implementation of the character-level model, genlm-bytes 0.2.0, in its own environment.

`make build/genlm/.ready` builds that environment. Each measurement runs `genlm_environment/genlm_bytes.py` in its own
process with one thread. That file says how it is set up, and how the end of a text is represented.
"""

import hashlib
import json
import math
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from inference.healing.vocabulary_file import read_object, read_vocabulary

_READY = Path("build/genlm/.ready")
_SCRIPT = Path(__file__).parent / "genlm_environment" / "genlm_bytes.py"
_STORED_WALKS = Path("build/genlm-walks")
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
_OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}


@dataclass(frozen=True, slots=True)
class Walk:
    """One distribution before each byte of a text."""

    text: bytes
    rows: npt.NDArray[np.float32]  # [num_bytes, 257] natural logarithms: 256 bytes, then the end of the text
    cpu_s: npt.NDArray[np.float64]  # [num_bytes] processor time from the start of the text to each byte

    @property
    def bits_per_byte(self) -> float:
        """Mean surprisal."""
        read = np.frombuffer(self.text, np.uint8)
        return -float(self.rows[np.arange(len(read)), read].mean(dtype=np.float64)) / math.log(2)

    @property
    def bytes_per_cpu_s(self) -> float:
        return len(self.rows) / float(self.cpu_s[-1])


class ReferenceModel:
    """genlm-bytes over the model in a folder."""

    def __init__(self, model_dir: Path) -> None:
        vocabulary = read_vocabulary(model_dir, read_object(model_dir / "tokenizer.json"))
        self._model_dir = model_dir.resolve()
        self._common = {
            "model": str(self._model_dir),
            "end_ids": sorted(vocabulary.end_ids),
            "absent_ids": sorted(vocabulary.special_ids - vocabulary.end_ids),
        }

    def walk(self, text: bytes, width: int) -> Walk:
        """Returns the walk over `text` with a beam of `width`.

        Raises SystemExit if the environment is missing, and RuntimeError with the end of the output if the job fails.
        """
        if not _READY.exists():
            raise SystemExit(f"{_READY} is missing: make {_READY}")
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            files = {"text": folder / "text", "arrays": folder / "walk.npz"}
            files["text"].write_bytes(text)
            job = {**self._common, "width": width}
            _run(folder, job | {name: str(path) for name, path in files.items()})
            with np.load(files["arrays"]) as read:
                return Walk(text, read["rows"], read["cpu_s"])

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
            path.parent.mkdir(parents=True, exist_ok=True)
            np.savez(path, rows=walk.rows, cpu_s=walk.cpu_s)
        with np.load(path) as read:
            return Walk(text, read["rows"], read["cpu_s"])


def _run(folder: Path, job: dict[str, Any]) -> None:
    """The process starts in `folder`, because genlm-bytes is a namespace package that a folder `genlm` would hide."""
    path = folder / "job.json"
    path.write_text(json.dumps(job))
    command = [str(_READY.parent.absolute() / "bin/python"), "-E", str(_SCRIPT), str(path)]
    environment = {**os.environ, **_ONE_THREAD, **_OFFLINE}
    ended = subprocess.run(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True)
    if ended.returncode:
        raise RuntimeError(f"genlm-bytes failed:\n{ended.stderr[-2000:]}")
