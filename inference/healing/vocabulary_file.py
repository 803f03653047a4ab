"""Token ids to bytes, for every supported kind of tokenizer.

| `tokenizer.json` | how a token is written | ` not` is |
|---|---|---|
| byte-level BPE | one character of GPT-2's alphabet for each byte | `Ġnot` |
| SentencePiece | `▁` for a blank; with byte fallback `<0xNN>` for a byte | `▁not` |

*Added tokens* are strings that a tokenizer finds in a text before everything else. Each is text or a control token. It
is a control token if the file says so (`special`), or if it looks like one:

| looks like | examples |
|---|---|
| something between `<|` and `|>`, or with wide bars | `<|fim_prefix|>`, `<|im_start|>`, `<｜tool▁calls▁begin｜>` |
| a name in brackets, or in brackets the other way round | `[INST]`, `[/INST]`, `[TOOL_CALLS]`, `]<]end[>[` |
| a name in angle brackets that is no element of HTML | `<tool_call>`, `<start_of_turn>`, `<unused12>`, `<think>` |
| what ends a control token | `</s>` beside a special `<s>` (Phi-3) |

Every other added token is text: runs of blanks and of line ends (GPT-NeoX, Phi, Gemma), tags of HTML (Gemma), letters
and words. Text that looks like a control token is never encoded as one.

So `<s>`, an element of HTML, is text if the file does not mark it as special (Gemma).
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import Any

from inference.errors import ModelError, quote
from inference.model_folder import read_object
from trie_cache.trie import Vocabulary

_Json = Any  # the result of json.loads: its shape is checked by the function that reads it

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_BARS = re.compile(r"<[|｜].*[|｜]>", re.DOTALL)
_BRACKETS = re.compile(r"\[/?[A-Za-z]\w*\]|\].+\[")
_ANGLES = re.compile(r"[▁ ]?</?([^<>\s/]+)>")
_HTML_ELEMENTS = frozenset(
    re.findall(
        r"\w+",
        "a abbr article aside b blockquote body br button caption center cite code col colgroup dd del div dl "
        "dt em figcaption figure font footer form h1 h2 h3 h4 h5 h6 head header hr html i iframe img input ins "
        "kbd label li link main mark meta nav ol option p pre q s samp script section select small span strike "
        "strong style sub sup svg table tbody td textarea tfoot th thead title tr tt u ul var",
    )
)


def read_vocabulary(model_dir: Path, spec: _Json, num_rows: int | None = None) -> Vocabulary:
    """The vocabulary of a model folder. `spec`: its `tokenizer.json`, as the tokenizers library can load it.

    `num_rows`: the rows of the model's head; by default `vocab_size` in `config.json`, or the largest id plus one.
    The end tokens are those of `config.json`, `generation_config.json` and `tokenizer_config.json` together, as far as
    they exist. As in transformers, what `tokenizer_config.json` names is special, whatever `tokenizer.json` says.
    Raises ModelError, also if the files name end tokens and none of them exists.
    """
    paths = [model_dir / name for name in ("config.json", "generation_config.json", "tokenizer_config.json")]
    config, generation, tokenizer = map(read_object, paths)
    end_ids = _find_end_ids(config.get("eos_token_id"), paths[0])
    end_ids |= _find_end_ids(generation.get("eos_token_id"), paths[1])
    starts, ends = (_find_names(tokenizer, key, paths[2]) for key in ("bos_token", "eos_token"))
    num_rows = num_rows or config.get("vocab_size")
    if num_rows is not None and type(num_rows) is not int:
        raise ModelError(f"{paths[0]}: vocab_size is {quote(str(num_rows))}, but should be a whole number")
    try:
        tokens, special_tokens = _read_tokens(spec)
        pieces = spec["model"]["vocab"]
        special_tokens = {name: pieces[name] for name in (*starts, *ends) if name in pieces} | special_tokens
        there = end_ids.union(special_tokens[name] for name in ends if name in special_tokens)
        there &= {*tokens, *special_tokens.values()}
        vocabulary = Vocabulary.from_tokens(tokens, special_tokens, there, num_rows)
    except ValueError as error:
        raise ModelError(f"{model_dir / 'tokenizer.json'}: {error}") from None
    if (end_ids or ends) and not vocabulary.end_ids:
        named = ", ".join([*ends, *map(str, sorted(end_ids))])
        raise ModelError(f"{model_dir} names as end of a text what its model does not have: {quote(named)}")
    return vocabulary


@dataclass(frozen=True, slots=True)
class AddedToken:
    """One item of `added_tokens` in a `tokenizer.json`."""

    token_id: int
    content: str
    is_control: bool  # a mark that no text is encoded as; otherwise ordinary text
    is_normalized: bool  # found in the text after the normalizer, not before it
    flags: tuple[str, ...]  # those of `single_word`, `lstrip` and `rstrip` that are set


def read_added_tokens(spec: _Json) -> tuple[AddedToken, ...]:
    """The added tokens of a `tokenizer.json`. Raises KeyError or TypeError if it is not as it should be."""
    items = spec.get("added_tokens") or ()
    special = {end for added in items if added["special"] for end in (added["content"], f"</{added['content'][1:]}")}
    return tuple(
        AddedToken(
            token_id=added["id"],
            content=added["content"],
            is_control=added["content"] in special or _looks_like_control(added["content"]),
            is_normalized=bool(added.get("normalized", False)),
            flags=tuple(flag for flag in ("single_word", "lstrip", "rstrip") if added.get(flag)),
        )
        for added in items
    )


def _looks_like_control(content: str) -> bool:
    if not content or _BARS.search(content) or _BRACKETS.fullmatch(content):
        return True
    angles = _ANGLES.fullmatch(content)
    return angles is not None and angles[1] not in _HTML_ELEMENTS


def _read_tokens(spec: _Json) -> tuple[dict[int, bytes], dict[str, int]]:
    """Ordinary tokens (id -> bytes) and special ones (name -> id). Raises ValueError."""
    model = spec["model"]
    pieces, unknown = model["vocab"], model.get("unk_token")
    steps = list(iter_steps(spec.get("decoder"), spec.get("pre_tokenizer")))
    tokens = _decode_pieces(pieces, steps, model.get("byte_fallback", False))
    special_tokens = {unknown: pieces[unknown]} if unknown in pieces else {}
    for added in read_added_tokens(spec):
        if added.is_control:
            special_tokens[added.content] = added.token_id
        elif added.token_id not in tokens or "▁" not in added.content:
            tokens[added.token_id] = added.content.encode()
    return tokens, special_tokens


def iter_steps(*steps: _Json) -> Iterator[_Json]:
    """The normalizers, pre-tokenizers or decoders in a `tokenizer.json`, those inside sequences too; none for None."""
    for step in steps:
        if step is not None:
            if step["type"] != "Sequence":
                yield step
            inner = (step.get(name, ()) for name in ("normalizers", "pretokenizers", "decoders"))
            yield from iter_steps(*chain.from_iterable(inner))


def _decode_pieces(pieces: Mapping[str, int], steps: list[_Json], byte_fallback: bool) -> dict[int, bytes]:
    kinds = {step["type"] for step in steps}
    if "ByteLevel" in kinds:
        return _decode_byte_level(pieces)
    if "Metaspace" in kinds or any(step.get("pattern") == {"String": "▁"} for step in steps):
        return _decode_sentencepiece(pieces, byte_fallback or "ByteFallback" in kinds)
    raise ValueError("its decoder is neither ByteLevel nor SentencePiece's")


def _decode_byte_level(pieces: Mapping[str, int]) -> dict[int, bytes]:
    table = dict.fromkeys(range(256), 0xFFFF) | {ord(shown): byte for byte, shown in enumerate(BYTE_LEVEL_ALPHABET)}
    tokens = {}
    for piece, token_id in pieces.items():
        try:
            tokens[token_id] = piece.translate(table).encode("latin-1")
        except UnicodeEncodeError:  # a character outside the alphabet: the token is its own text, as in the decoder
            tokens[token_id] = piece.encode()
    return tokens


def _build_alphabet() -> str:
    """Printable Latin-1 bytes are written as themselves, and the others in order from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = count(0x100)
    return "".join(chr(byte if byte in printable else next(others)) for byte in range(256))


BYTE_LEVEL_ALPHABET = _build_alphabet()
"""GPT-2's character for each byte."""


def _decode_sentencepiece(pieces: Mapping[str, int], byte_fallback: bool) -> dict[int, bytes]:
    written = {token_id: _BYTE_TOKEN.fullmatch(piece) for piece, token_id in pieces.items() if byte_fallback}
    tokens = {token_id: piece.replace("▁", " ").encode() for piece, token_id in pieces.items()}
    return tokens | {token_id: bytes([int(match[1], 16)]) for token_id, match in written.items() if match}


def _find_end_ids(value: _Json, path: Path) -> set[int]:
    """The ids in `eos_token_id` of the file, which may be absent, one id or a list. Raises ModelError."""
    ids = [token_id for token_id in (value if isinstance(value, list) else [value]) if token_id is not None]
    for token_id in ids:
        if type(token_id) is not int:
            raise ModelError(f"{path}: eos_token_id is {value!r}, but should be a token's id or a list of ids")
    return set(ids)


def _find_names(config: _Json, key: str, path: Path) -> list[str]:
    """The name under that key of the file, which may be absent, a string or an object with it. Raises ModelError."""
    value = config.get(key)
    if value is None:
        return []
    name = value.get("content") if isinstance(value, dict) else value
    if not isinstance(name, str):
        raise ModelError(f"{path}: {key} is {value!r}, but should be a token's name")
    return [name]
