"""Sessions of typing in held-out files of all sizes."""

from functools import cache
from pathlib import Path

from tokenizers import Tokenizer

from benchmarks.corpora.sized_files import SizedFile, find_sized_files
from benchmarks.corpora.typing import Session
from benchmarks.corpora.typist import draw_session
from models.training.corpus import iter_held_out

_SIZES = (300, 1_000, 3_000, 9_000, 19_000, 36_000)  # in tokens
_NUM_EACH = 2


def draw_typing(model_dir: Path, num_keys: int, seed: int, min_tokens: int = 0) -> Session:
    """Draws at least `num_keys` keys in files of at least `min_tokens`.

    Sizes are in tokens of the model's tokenizer. The largest is that of joined files, since no file is so long.
    """
    return draw_session([file for file in _find_files(model_dir) if file.num_tokens >= min_tokens], num_keys, seed)


@cache
def _find_files(model_dir: Path) -> list[SizedFile]:
    tokenizer = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
    return find_sized_files(
        iter_held_out(), _SIZES, _NUM_EACH, lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)
    )
