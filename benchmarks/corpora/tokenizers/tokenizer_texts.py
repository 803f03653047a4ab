"""Texts to compare tokenizers with."""

import random
from collections.abc import Sequence

from benchmarks.corpora.awkward_text import make_awkward_text

_MAX_CHARS = 240
_CODE_SHARE, _AWKWARD_SHARE = 0.5, 0.3  # the rest are texts of runs
_INSERT_SHARE = 0.5  # texts with added tokens of the tokenizer
_MAX_RUN = 40
_NUM_RUNS = 16
_WORDS = (
    "x", "max", " a", "Zürich", "中", "\u0301", ".", "_", "(", "e", "0x", " -", "</td>", "'s", ",", ":", '"', 'f("',
    "a.b@c.org", "ab.cd@", "camelCase(", "join(", '("", " ", "a b")', "§",
)  # fmt: skip


def draw_texts(sources: Sequence[Sequence[str]], num_texts: int, seed: int) -> list[str]:
    """Pieces of the sources, which are files by language, awkward texts, and texts with runs of digits and blanks."""
    rng = random.Random(seed)
    return [_draw_text(rng.choice(sources), rng) for _ in range(num_texts)]


def insert_pieces(text: str, pieces: Sequence[str], rng: random.Random) -> str:
    """The text; in half of the cases with some of the pieces in it."""
    if not pieces or rng.random() > _INSERT_SHARE:
        return text
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(text) + 1)
        text = text[:at] + rng.choice(pieces) + text[at:]
    return text


def _draw_text(files: Sequence[str], rng: random.Random) -> str:
    share = rng.random()
    if share < _CODE_SHARE:
        text = rng.choice(files)
        start = rng.randrange(max(len(text) - _MAX_CHARS, 1))
        text = text[start : start + _MAX_CHARS]
    elif share < _CODE_SHARE + _AWKWARD_SHARE:
        text = make_awkward_text(rng)
    else:
        text = "".join(_draw_run(rng) for _ in range(_NUM_RUNS))
    return text.replace("▁", "_")  # SentencePiece's mark for a blank; as a character in a text it is not judged


def _draw_run(rng: random.Random) -> str:
    """Digits, blanks, tabs or line ends, seldom many of them; or a word."""
    length = min(int(rng.paretovariate(0.8)), _MAX_RUN)
    kind = rng.randrange(5)
    if kind == 0:
        return "".join(rng.choices("0123456789", k=length))
    return (" ", "\t", "\n")[kind - 1] * length if kind < 4 else rng.choice(_WORDS)
