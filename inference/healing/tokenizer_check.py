"""Compares a text encoder with the tokenizer itself, on texts that tokenizers disagree about.

Three things must hold for each text of a sample: the ids are those of the `tokenizers` library, their bytes join to the
text, and the kept tokens of its first half are the first tokens of the whole.

Two differences are intended. Text that looks like a control token is text: the library encodes it here without control
marks. And a typed U+2581 remains one in SentencePiece: it is not in the sample.
"""

from collections.abc import Iterable, Iterator
from itertools import chain

from tokenizers import Tokenizer

from inference.errors import ModelError
from inference.healing.heal_point import encode_text, find_heal_point
from inference.healing.text_encoder import TextEncoder
from inference.healing.tokenizer_file import BLANK_MARK, TokenizerFile
from trie_cache.vocabulary import Vocabulary

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


def check_tokenizer(file: TokenizerFile, encoder: TextEncoder, vocabulary: Vocabulary) -> None:
    """Raises ModelError if the encoder, or the bytes of the vocabulary, differ from the tokenizer."""
    plain = file.build_plain()
    id_of = {token.token_id: token.content for token in chain.from_iterable(file.added_texts)}
    added_ids = {plain.token_to_id(content): token_id for token_id, content in id_of.items()}
    for text in _iter_sample(file):
        expected = tuple(
            [added_ids.get(token_id, token_id) for token_id in plain.encode(text, add_special_tokens=False).ids]
        )
        _check_ids(file.tokenizer, encode_text(encoder, text), expected)
        _check_bytes(encoder, vocabulary, text, expected)
        _check_kept(file.tokenizer, encoder, text, expected)


def _iter_sample(file: TokenizerFile) -> Iterator[str]:
    yield from _TEXTS
    for characters in (_FIRST_CHARACTERS, _LATER_CHARACTERS):
        text = "".join([chr(code) for code in characters]).replace(BLANK_MARK, "")
        yield text
        yield " ".join(text[::5])
    texts = [token.content for token in chain.from_iterable(file.added_texts)]
    some = texts[:: -(-len(texts) // _MAX_ADDED_TEXTS)] if texts else []
    for content in some:
        yield f"a{content}b  {content} {content}{content[:-1]}\n{content[1:]}.{content}"


def _check_ids(tokenizer: Tokenizer, ids: tuple[int, ...], expected: tuple[int, ...]) -> None:
    if ids != expected:
        at = _count_same(ids, expected)
        raise ModelError(
            f"midtoken would encode a text otherwise than this tokenizer: after {_show(tokenizer, expected[:at][-2:])} "
            f"it makes {_show(tokenizer, ids[at:])}, the tokenizer {_show(tokenizer, expected[at:])}"
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


def _check_kept(tokenizer: Tokenizer, encoder: TextEncoder, text: str, expected: tuple[int, ...]) -> None:
    for cut in (len(text) // 3, 2 * len(text) // 3):
        kept_ids = find_heal_point(encoder, text[:cut]).kept_ids
        if expected[: len(kept_ids)] != kept_ids:
            at = _count_same(kept_ids, expected)
            raise ModelError(
                f"text after {text[max(cut - 12, 0) : cut]!r} changes tokens that midtoken takes for settled: "
                f"{_show(tokenizer, kept_ids[at:])} becomes {_show(tokenizer, expected[at:])}"
            )


def _count_same(ids: Iterable[int], expected: Iterable[int]) -> int:
    num_same = 0
    for one, other in zip(ids, expected, strict=False):
        if one != other:
            break
        num_same += 1
    return num_same


def _show(tokenizer: Tokenizer, ids: tuple[int, ...]) -> str:
    shown = [f"{tokenizer.id_to_token(token_id)!r} ({token_id})" for token_id in ids[:_NUM_SHOWN]]
    return ", ".join(shown) or "nothing"
