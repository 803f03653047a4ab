"""Text that is hard for pre-tokenizers, because characters change how the text before them is split."""

import random
from collections.abc import Sequence

# Each group is one difficulty. A text is drawn from few groups, so that pieces of one group are often adjacent.
_GROUPS = (
    (" ", "  ", "   ", " " * 7, " " * 40),
    ("\n", "\n\n", "\r\n", "\r\n\r\n", "\r", " \n", "\n \n", "\n    \n", "\t\n", " \r\n", "\n\r"),
    ("\t", "\t\t", "\t ", " \t", "\n\t\t", "\t\t\t\t\t\t"),
    ("'s", "'t", "'ll", "'LL", "'Re", "'ve", "'m", "'d", "'", "''", "don't", "I'd", "'l", "'r", "x'll", "'llama", "'ſ"),
    ("中文", "日本語", "の", "한국어", "、", "。", "「中」", "变量", "ｆｕｌｌ", "\u3000"),
    ("😀", "👩‍💻", "👨‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇩🇪", "\u200d", "\ufe0f", "\u200b", "\ufeff"),
    ("é", "e\u0301", "\u0301", "n\u0303", "ộ", "Z\u0351\u036b\u0343", "ु", "हिन्दी", "ไทย", "שָׁלוֹם", "العربية"),
    ("1", "12", "123", "1234", "007", "3.14", "1_000", "1e-9", "0xFF", "²", "½", "٣", "Ⅷ"),
    ('"', "'", "`", '"""', "'''", "``", "“", "”", "’", '\\"', "f'", 'b"', "'\"", "\"'"),
    ("a" * 30, "=" * 30, "-" * 60, "." * 20, "9" * 20, "ab" * 20, "#" * 12, "\n" * 12, "é" * 15, "😀" * 8),
    ("\f", "\v", "\x0c\n", "\x85", "\u2028", "\u2029", "\x1c", "\x1f"),
    ("\xa0", "\xa0\xa0", "\u2009", "\u202f", " \xa0", "\xa0 ", "\xa0\n", "a\xa0b"),
    ("_", "__init__", "snake_case", "camelCase", "HTTPServer", "x", "Ab", "if", "return", "self", "ǅ", "ß", "ﬁ"),
    ("(", ")", "()", "{}", "[", "];", "->", "=>", "::", "!=", "//", "/*", "*/", "...", "$", "@", "\\", "\\n", "<|x|>"),
    ("\x00", "\x7f", "\x1b[0m", "\ue000", "\U000f0000", "\ufffd"),
)
_LONG_RUNS = (
    " " * 300,
    "\t" * 270,
    "\n" * 280,
    "x" * 400,
    "=" * 350,
    "7" * 260,
    "\n  " * 110,
    "文字" * 70,
    "aB3" * 100,
)
_LONG_RUN_SHARE = 0.02  # the share of texts with long runs
_NUM_PIECES = 60


def make_awkward_text(rng: random.Random) -> str:
    """Returns a text of some hundred characters, rarely of some thousand."""
    groups = rng.sample(_GROUPS, rng.randint(2, 5))
    if rng.random() < _LONG_RUN_SHARE:
        groups.append(_LONG_RUNS)
    return "".join(rng.choice(rng.choice(groups)) for _ in range(rng.randint(5, _NUM_PIECES)))


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
    return text.replace("▁", "_")  # SentencePiece's mark for a blank; as a character in a text it is not compared


def _draw_run(rng: random.Random) -> str:
    """Digits, blanks, tabs or line ends, seldom many of them; or a word."""
    length = min(int(rng.paretovariate(0.8)), _MAX_RUN)
    kind = rng.randrange(5)
    if kind == 0:
        return "".join(rng.choices("0123456789", k=length))
    return (" ", "\t", "\n")[kind - 1] * length if kind < 4 else rng.choice(_WORDS)
