"""Loads the tokenizer of a model folder: right, or refused with one sentence that names what is not supported.

*Right* is checked in two ways. For each text of a sample that tokenizers disagree about, the ids are those of the
`tokenizers` library, and their bytes join to the text. And no continuation moves boundaries between pre-tokens in a way
that the heal point does not foresee. It tries some forty continuations, which is enough for the patterns in use, but a
pattern may look further ahead, or join what is further back: `\\w+(?=\\()` splits a word when a parenthesis follows
later letters, and `"[^"]*"` joins everything since the opening quote. `\\breturn\\b` or `-{3,}` wait for one word or
run, so texts that the patterns match are written and cut everywhere, too.

Two differences are intended. Text that looks like a control token is text: the library encodes it here without control
marks. And a typed U+2581 remains one in SentencePiece: it is not in the sample.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, product
from pathlib import Path

import regex
from tokenizers import Tokenizer

from inference.errors import ModelError, quote
from inference.healing.heal_point import HealPoint, encode_text, find_heal_point
from inference.healing.sentencepiece_encoder import SentencePieceEncoder
from inference.healing.text_encoder import ByteLevelEncoder, TextEncoder
from inference.healing.token_tree import count_common
from inference.healing.tokenizer_file import (
    BLANK_MARK,
    TokenizerFile,
    naming_file,
    read_tokenizer_file,
    refusing_panics,
)
from inference.healing.vocabulary_file import read_vocabulary
from inference.model_folder import read_object
from trie_cache.trie import Trie, Vocabulary

_MAX_ADDED_TEXTS = 48  # so many of the added texts are in the sample
_NUM_SHOWN = 4  # tokens in a message
_NUM_BYTES_SHOWN = 12

_TEXTS = (
    "def get_node(self, name='x'):\n    return  self.nodes[name]  # don't we'll I'M they'RE\n\n\n",
    "x = 1 + 12*123 - 1234.56789 / 0xFF_00 ** 1e-9; y=12345678901234567890\r\n\r\n\t\tif (a==b) {\n\t}\n",
    "  leading\n \n  \n\n   \t \n trailing   ",
    "für Straße café cafe\u0301 n\u0303 \u0301x A\u030a ﬁ ½ ¼ ² ÷ üöø Ü\xa0\u3000\u2009\u2028\x85\x0b\x0c\x1c\x7f\x00.",
    "中文字符，日本語。「の」한국어 العربية हिन्दी ไทย עִבְרִית 😀👩‍💻👍🏽🇩🇪\ufeff\u200b\ufffd\ue000\U000f0000\U0010ffff",
    "HTTPServer camelCase snake_case __init__ ... -> => != // /* */ \"\"\" ''' `` “” ’s $@\\ #### ==== ---- ((([[[{{{",
    "<b>not a mark</b> <| [x] <0x41> Ġ Ċ ſ ǅ Ⅷ ٣ 3.14 1_000 1,000,000 12a 1a2b3c a1 007",
    "a" * 70 + " " * 70 + "\n" * 40 + "=" * 70 + "é" * 30 + "7" * 16 + "\t" * 20 + "中" * 20,
)
_FIRST_CHARACTERS = (*range(0x20), *range(0x7F, 0x250), *range(0x250, 0x3100, 0x3F))
_LATER_CHARACTERS = (*range(0x3100, 0xD800, 0x3F1), *range(0xE000, 0x10000, 0x171), *range(0x10000, 0x110000, 0x7ABC))
_BEGUN = (  # texts that end inside a construct which some pattern might close
    "foo bar",
    'x = "ab cd, ef gh',
    "x 'ab cd, ef gh",
    "to ab.cd-ef.gh",
    "f(ab, [cd {ef <gh",
    "1 12.345,678",
    "/* ab // cd # ef\n  gh",
    "  \t\n \n   ",
)
_PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
_BEFORE_EXAMPLE, _AFTER_EXAMPLE = ("", "a", " ", "a ("), ("", "a", " ", ".", ") a")
_PATTERN_PART = re.compile(
    r"\(\?<?[:=!>]|\(\?\w+:|\)[?*+]*(?:\{\d+,?\d*\})?|[(^$|]|\\[bBAzZ]"  # what matches no character
    r"|(?P<text>\\[pP]\{[^}]*\}|\\.|\[\^?\]?(?:\\[pP]\{[^}]*\}|\\.|\[:\w+:\]|[^\]\\])*\]|.)"
    r"(?:\{(?P<count>\d+)(?P<more>,\d*)?\}|\?|(?P<repeat>[*+]))?[?+]?",
    re.DOTALL,
)
_ESCAPED_OR_ONE = re.compile(r"\\[pP]\{[^}]*\}|\\.|.", re.DOTALL)
_ANY = "a( 1"
_NUM_TURNS = 4  # more than a tail has pre-tokens
_OF_CLASS = {
    r"\s": " ", r"\S": "a(1", r"\d": "1", r"\D": "a( ", r"\w": "a1", r"\W": ".( ", r"\n": "\n", r"\r": "\r",
    r"\t": "\t", r"\p{N": "1", r"\p{P": ".(", r"\p{S": "+", r"\p{Z": " ", r"\p": "a", r"\P": "1(", ".": _ANY,
}  # fmt: skip
_CONTINUATIONS = ["".join(parts) for parts in product(("", "a"), _PUNCTUATION, ("", "a"))]


@dataclass(frozen=True, slots=True)
class LoadedTokenizer:
    """All that is known of a model's tokenizer."""

    encoder: TextEncoder
    vocabulary: Vocabulary
    trie: Trie
    start_ids: tuple[int, ...]  # every text begins with these; at least one
    sample: tuple[tuple[str, tuple[int, ...]], ...] = ()  # texts that another tokenizer with this vocabulary makes so


@refusing_panics
def load_tokenizer(model_dir: Path, num_rows: int | None = None) -> LoadedTokenizer:
    """The tokenizer in `model_dir`, compared with what the `tokenizers` library makes of a sample.

    `num_rows`: the rows of the model's head; by default as `read_vocabulary` finds them.
    Raises ModelError if exact healing does not support it.
    """
    file = read_tokenizer_file(model_dir)
    vocabulary = read_vocabulary(model_dir, file.spec, num_rows)
    with naming_file(model_dir):
        encoder = build_text_encoder(file)
        _check_sample(file, encoder, vocabulary)
        _check_boundaries(encoder, file.patterns)
    start_ids = find_start_ids(encoder.start_ids, model_dir, vocabulary)
    sample = [_simplify(encoder, text) for text in iter_sample(file, encoder)]
    encoded = tuple((text, encode_text(encoder, text)) for text in sample)
    return LoadedTokenizer(encoder, vocabulary, Trie.build(vocabulary), start_ids, encoded)


def build_text_encoder(file: TokenizerFile) -> TextEncoder:
    """The text encoder for a file. Raises ModelError if exact healing does not support it."""
    return SentencePieceEncoder(file) if file.is_sentencepiece else ByteLevelEncoder(file)


def find_start_ids(written: tuple[int, ...], model_dir: Path, vocabulary: Vocabulary) -> tuple[int, ...]:
    """The tokens that every text of the model begins with.

    In order of preference: `written`, those of the tokenizer's file; the start token that `tokenizer_config.json` asks
    for (as DeepSeek's does, whose `tokenizer.json` writes none); the token for the end of a text; a start token that is
    named but not asked for. Raises ModelError if there is none, or if the model has no row for it.
    """
    config = read_object(model_dir / "tokenizer_config.json")
    token = config.get("bos_token")
    named_id = vocabulary.special_tokens.get(str(token["content"] if isinstance(token, dict) else token))
    named = () if named_id is None else (named_id,)
    asked = named if config.get("add_bos_token") is True else ()
    if config.get("add_bos_token") is True and token is not None and not written + named:
        raise ModelError(f"{model_dir} has texts begin with a token that its model does not have: {quote(str(token))}")
    start_ids = written or asked or tuple(sorted(vocabulary.end_ids))[:1] or named
    if not start_ids:
        raise ModelError(f"{model_dir} names no token that a text begins or ends with")
    if max(start_ids) >= vocabulary.num_rows:
        raise ModelError(
            f"{model_dir / 'tokenizer.json'}: texts begin with the token {max(start_ids)}, but the model's head has "
            f"{vocabulary.num_rows} rows; the tokenizer is of another model"
        )
    return start_ids


def _check_sample(file: TokenizerFile, encoder: TextEncoder, vocabulary: Vocabulary) -> None:
    """Raises ModelError if the encoder, or the bytes of the vocabulary, differ from the tokenizer."""
    plain = file.build_plain()
    added_ids = {plain.token_to_id(token.content): token.token_id for token in chain.from_iterable(file.added_texts)}
    for text in iter_sample(file, encoder):
        expected = tuple(
            [added_ids.get(token_id, token_id) for token_id in plain.encode(text, add_special_tokens=False).ids]
        )
        check_ids(file.tokenizer, encode_text(encoder, text), expected, "this tokenizer")
        _check_bytes(encoder, vocabulary, text, expected)


def _simplify(encoder: TextEncoder, text: str) -> str:
    """The text as the normalizer leaves it, without combining marks.

    llama.cpp normalizes nothing, and some of its patterns split at marks where the model's own do not.
    """
    unmarked = [c for c in encoder.normalize(text) if unicodedata.category(c)[0] != "M"]
    return encoder.normalize("".join(unmarked))


def iter_sample(file: TokenizerFile, encoder: TextEncoder) -> Iterator[str]:
    """Texts that tokenizers disagree about, without what the vocabulary cannot spell."""
    yield from map(encoder.replace_unspelled, _iter_texts(file))


def _iter_texts(file: TokenizerFile) -> Iterator[str]:
    yield from _TEXTS
    for characters in (_FIRST_CHARACTERS, _LATER_CHARACTERS):
        text = "".join([chr(code) for code in characters]).replace(BLANK_MARK, "")
        yield text
        yield " ".join(text[::5])
    texts = [token.content for token in chain.from_iterable(file.added_texts)]
    for content in texts[:: max(-(-len(texts) // _MAX_ADDED_TEXTS), 1)]:
        yield f"a{content}b  {content} {content}{content[:-1]}\n{content[1:]}.{content}"


def check_ids(tokenizer: Tokenizer, ids: tuple[int, ...], expected: tuple[int, ...], whose: str) -> None:
    """Raises ModelError if our ids of a text are not those of another tokenizer."""
    if ids != expected:
        at = count_common(ids, expected)
        raise ModelError(
            f"midtoken would encode a text otherwise than {whose}: after {_show(tokenizer, expected[:at][-2:])} "
            f"it makes {_show(tokenizer, ids[at:])}, {whose} {_show(tokenizer, expected[at:])}"
        )


def _check_bytes(encoder: TextEncoder, vocabulary: Vocabulary, text: str, ids: tuple[int, ...]) -> None:
    text = encoder.normalize(text)
    data = (encoder.find_dummy_prefix(text) + text).encode()
    start = 0
    for token_id in ids:
        token = vocabulary.token_bytes[token_id] if token_id < vocabulary.num_rows else b""
        if not token or not data.startswith(token, start):
            raise ModelError(
                f"token {token_id} has the bytes {token!r}, but the tokenizer writes it for the beginning of "
                f"{data[start : start + _NUM_BYTES_SHOWN].decode(errors='replace')!r}"
            )
        start += len(token)
    if start != len(data):
        dropped = data[start : start + _NUM_BYTES_SHOWN].decode(errors="replace")
        raise ModelError(f"the tokenizer drops the end of a text, {dropped!r}")


def _show(tokenizer: Tokenizer, ids: tuple[int, ...]) -> str:
    shown = [f"{tokenizer.id_to_token(token_id)!r} ({token_id})" for token_id in ids[:_NUM_SHOWN]]
    return ", ".join(shown) or "nothing"


def _check_boundaries(encoder: TextEncoder, patterns: tuple[str, ...]) -> None:
    """Raises ModelError if a continuation moves boundaries in another way than the heal point foresees."""
    turns = [[*chain.from_iterable(_write_examples(each, turn) for each in patterns)] for turn in range(len(_ANY))]
    examples = list(dict.fromkeys(chain(*turns)))
    continuations = {begun: [*_CONTINUATIONS, *examples] for begun in _BEGUN}
    befores = dict.fromkeys([*_BEFORE_EXAMPLE, *(turns[0] if len(patterns) > 1 else ())])  # one step's in another's
    for before, example in product(befores, examples):
        for cut in range(1, len(example) + 1):
            rests = [example[cut:] + more for more in _AFTER_EXAMPLE]
            begun = before + example[:cut]
            continuations[begun] = [*continuations.get(begun, examples), *rests]
    for before, (run, rest) in product(_BEFORE_EXAMPLE, chain.from_iterable(map(_write_runs, patterns))):
        continuations.setdefault(before + run, [rest + more for more in _AFTER_EXAMPLE])
    for begun, others in continuations.items():
        _check_continuations(encoder, begun, others)


def _check_continuations(encoder: TextEncoder, begun: str, continuations: Iterable[str]) -> None:
    point = find_heal_point(encoder, begun)
    text = encoder.find_dummy_prefix(begun) + encoder.replace_unspelled(begun)
    start = len(text.encode()) - len(point.healed)
    kept = tuple(piece.end for piece in encoder.split(text) if piece.end <= start)
    for more in continuations:
        ends = tuple([piece.end for piece in encoder.split(text + more)])
        if tuple([end for end in ends if end <= start]) != kept or not _is_foreseen(point, start, ends):
            raise ModelError(
                f"pre_tokenizer: {more!r} after {begun!r} moves the boundaries of pre-tokens in a way "
                "that midtoken does not foresee, so it is not supported"
            )


def _write_examples(pattern: str, turn: int) -> Iterator[str]:
    """Texts that the alternatives of a pattern match, or nearly so: with few repetitions, and with one more.

    Groups and what they look at are written like all else. `turn`: with which of its kinds of characters a part begins.
    """
    for parts in _iter_alternatives(pattern):
        runs = [(chars[turn % len(chars) :] + chars, count, repeat) for chars, count, repeat in parts]
        yield "".join([(chars * count)[:count] for chars, count, _ in runs])
        yield "".join([(chars * (count + 1))[: None if repeat == "+" else count] for chars, count, repeat in runs])


def _write_runs(pattern: str) -> Iterator[tuple[str, str]]:
    """Long runs of two kinds in turn, which a later step may split again, and what completes the match after them."""
    for parts in _iter_alternatives(pattern):
        for at, (chars, _, repeat) in enumerate(parts):
            rest = "".join([chars[:1] for chars, *_ in parts[at + 1 :]])
            if repeat and len(chars) > 1:
                yield from ((_NUM_TURNS * (chars * 2)[kind : kind + 2], rest) for kind in range(len(chars)))


def _iter_alternatives(pattern: str) -> Iterator[list[tuple[str, int, str]]]:
    """The parts of each alternative: characters in turn, how many, and "*" or "+" if there may be none or more."""
    parts: list[tuple[str, int, str]] = []
    for part in [*_PATTERN_PART.finditer(pattern), None]:
        if part is not None and part["text"]:
            repeat = part["repeat"] or ("+" if part["more"] else "")
            parts.append((_find_characters(part["text"]), int(part["count"] or 1), repeat))
        elif part is None or part[0] == "|":
            yield parts
            parts = []


def _find_characters(part: str) -> str:
    """Some characters that a part of a pattern matches."""
    if part.startswith("["):
        if part[1] != "^":
            return _find_characters(_ESCAPED_OR_ONE.findall(part[1:])[0])
        return "".join(filter(regex.compile(part).match, _ANY)) or _ANY
    return _OF_CLASS.get(part[:4], _OF_CLASS.get(part[:2], part[-1]))


def _is_foreseen(point: HealPoint, start: int, ends: tuple[int, ...]) -> bool:
    """True if the heal point has a split with these boundaries. One more at the cursor changes nothing."""
    num_bytes = len(point.healed)
    found = tuple([end - start for end in ends if start < end <= start + num_bytes])
    sets = {split.ends for split in point.splits}
    return found in sets or (found[-1:] == (num_bytes,) and found[:-1] in sets)
