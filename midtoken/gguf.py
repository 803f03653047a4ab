"""GGUF files: which belong to a model, what they say of it, and a model folder for one.

Only metadata is read. The package `gguf` reads the same in seven seconds of a vocabulary of 151,643 tokens, this in
half a second. The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md

These have the tokens and the merges, but of how text is split into pre-tokens only a name. `_SCHEMES` says what such a
name means, as the published `tokenizer.json` of the models does that have it. llama.cpp has the names from there, and
patterns of its own for them, which take a few letters for others. A name that is not in the table is refused, and so is
a tokenizer of another kind than BPE.

The folder is made in the user's cache, of links to the file or its parts, and what has to be written. Its name has a
digest of those files, so another is made when they change. It is complete as soon as it has that name. When the files
are gone, it is deleted with the next one that is made.
"""

import hashlib
import json
import mmap
import re
import shutil
import struct
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from inference.errors import LaunchError, ModelError, quote
from inference.model_folder import GGUF_NAME
from inference.private_files import FileLock, find_user_folder, make_private_folder

Metadata = dict[str, Any]  # the values have many shapes

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_CODES = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}  # type of a value -> its code in `struct`
_TEXT, _ARRAY = 8, 9
_MAX_NAMED = 8  # parts that are missing
_MAX_ITEMS = 2**24  # values, and items of lists; a vocabulary has three for a token
_MAX_BYTES = 2**28  # of all metadata; a file that takes no room on the disk may claim any number
_PART = re.compile(r"(.+)-\d{5}-of-(\d{5})\.gguf")


def list_part_names(name: str) -> list[str]:
    """Returns the names of all parts of a model, in order, if the name is that of a part; else the name."""
    found = _PART.fullmatch(name)
    return [name] if found is None else [f"{found[1]}-{n:05}-of-{found[2]}.gguf" for n in range(1, int(found[2]) + 1)]


def read_metadata(path: Path) -> Metadata:
    """Returns the metadata of a file, of which the rest need not be there. Raises ModelError."""
    try:
        num_bytes = min(path.stat().st_size, _MAX_BYTES)
        with path.open("rb") as file, mmap.mmap(file.fileno(), num_bytes, access=mmap.ACCESS_READ) as data:
            if data[:4] != _MAGIC:
                raise ModelError(f"{path} is not a GGUF file; a model is a folder, a GGUF file, or a name")
            reader = _Reader(data)
            [version] = reader.read("I")
            if version not in _VERSIONS:
                raise ModelError(f"{path} has version {version} of the GGUF format; versions 2 and 3 can be run")
            _, num_values = reader.read("Q", 2)  # the first is that of the tensors, which llama.cpp reads
            reader.count(num_values)
            return {reader.read_text(): reader.read_value(*reader.read("I")) for _ in range(num_values)}
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from None
    except (struct.error, ValueError, RecursionError):  # of UTF-8 too, and of a file without a byte
        raise ModelError(f"{path} has no whole metadata: it is cut off or damaged; download it again") from None


class _Reader:
    """Reads one value after the other. Raises struct.error or ValueError where there is none."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self.end = len(_MAGIC)  # of what was read
        self._num_items = 0

    def count(self, num_items: int) -> None:
        self._num_items += num_items
        if self._num_items > _MAX_ITEMS:
            raise ValueError("no model has so many")

    def read(self, code: str, count: int = 1) -> tuple[Any, ...]:
        layout = struct.Struct(f"<{count}{code}")
        values = layout.unpack_from(self._data, self.end)
        self.end += layout.size
        return values

    def read_text(self) -> str:
        start = self.end + 8
        self.end = start + self.read("Q")[0]
        if self.end > len(self._data):
            raise ValueError("a text is cut off")
        return self._data[start : self.end].decode()

    def read_value(self, kind: int) -> Any:
        if kind == _TEXT:
            return self.read_text()
        if kind != _ARRAY:
            return self.read(_CODES.get(kind, "unknown"))[0]
        [item], [count] = self.read("I"), self.read("Q")
        self.count(count)
        if item in (_TEXT, _ARRAY):
            return [self.read_value(item) for _ in range(count)]
        return list(self.read(_CODES.get(item, "unknown"), count))


_VERSION = 2  # of what is written
_POLL_S = 0.05  # between looks at whether another process has made a folder
_MAX_NAME_CHARS = 40  # of the file, in the name of its folder


def make_folder(path: Path) -> Path:
    """Returns the model folder for an absolute path, which is the path itself if that is no file.

    Raises ModelError or LaunchError.
    """
    if not path.is_file():
        return path
    files = [path.with_name(name) for name in list_part_names(path.name)]
    if missing := [part.name for part in files if not part.is_file()]:
        raise ModelError(f"{path} is a part of a model, and beside it {', '.join(missing[:_MAX_NAMED])} is missing")
    path = files[0]
    stamps = [(each.name, each.stat().st_size, each.stat().st_mtime_ns) for each in files]
    home = find_user_folder("cache") / "models" / _digest(path)
    folder = home / f"{path.stem[:_MAX_NAME_CHARS]}-{_digest((_VERSION, stamps))}"
    if not folder.is_dir():
        make_private_folder(home, "XDG_CACHE_HOME")
        with FileLock(home / "lock") as lock:
            while not lock.try_acquire():  # another process makes it
                time.sleep(_POLL_S)
            if not folder.is_dir():
                _make(folder, path, files)
    return folder


def _make(folder: Path, path: Path, files: list[Path]) -> None:
    metadata = [read_metadata(each) for each in files]
    num_parts = metadata[0].get("split.count", 1)
    if num_parts not in range(len(files) + 1):  # which may be of any type
        raise ModelError(f"{path} is one of {num_parts} parts of a model, but its name does not say which one")
    try:
        contents = write_folder_files(metadata[0])
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from None
    except KeyError as error:
        raise ModelError(
            f"{path}: its metadata has no {error.args[0]}, so it is incomplete; use another file of this model"
        ) from None
    except (AttributeError, IndexError, OSError, TypeError, ValueError) as error:
        raise ModelError(
            f"{path}: its tokenizer metadata cannot be read ({type(error).__name__}), so it is damaged; use "
            "another file of this model"
        ) from None
    fresh = folder.with_name("new")
    links = {GGUF_NAME if each == path else each.name: each for each in files}
    gone = {link.parent for link in folder.parent.parent.glob("*/*/*") if link.is_symlink() and not link.exists()}
    try:
        for other in {*filter(Path.is_dir, folder.parent.iterdir()), *gone}:  # older, or of a process that was killed
            shutil.rmtree(other, ignore_errors=True)
        fresh.mkdir()
        for name, content in contents.items():
            (fresh / name).write_text(json.dumps(content), encoding="utf-8")
        for name, target in links.items():
            (fresh / name).symlink_to(target)
        fresh.replace(folder)
    except OSError as error:
        raise LaunchError(f"cannot write {error.filename}: {error.strerror}") from None


def _digest(identity: object) -> str:
    return hashlib.sha256(repr(identity).encode()).hexdigest()[:12]


_Json = Any  # a part of a tokenizer.json, or of the metadata of a GGUF file

_BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
_GPT2 = {**_BYTES, "use_regex": True}
_DIGIT = {"type": "Digits", "individual_digits": True}

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_BLANKS = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_QWEN2 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + _BLANKS
_QWEN35 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + _BLANKS
_LLAMA3 = _QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
_SEED = _QWEN2.replace(r"[^\s\p{L}\p{N}]+[\r\n]*", r"[^\s\p{L}\p{N}\r\n]+")
_UPPER, _LOWER = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_SIGNS = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + _BLANKS
_TEKKEN = rf"{_UPPER}*{_LOWER}+|{_UPPER}+{_LOWER}*|\p{{N}}" + _SIGNS
_O200K = rf"{_UPPER}*{_LOWER}+{_CONTRACTIONS}?|{_UPPER}+{_LOWER}*{_CONTRACTIONS}?|\p{{N}}{{1,3}}" + _SIGNS
_RARE = "\u1c80-\u1c8a\ua790-\ua7fa\uab30-\uab68\U00010570-\U000105bc\U00010d50-\U00010d85\U00016e40-\U0001df2a"
_DEEPSEEK_LETTERS = rf"\s?(?:(?![{_RARE}])[\p{{Lu}}\p{{Ll}}\p{{Lt}}])+"  # there, they are listed one by one
_DEEPSEEK_SIGNS = "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"
_CJK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
_DEEPSEEK_V3 = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"""
    + _BLANKS
)


@dataclass(frozen=True, slots=True)
class _Scheme:
    """How a text becomes pre-tokens, and how those become tokens."""

    steps: tuple[str | dict[str, _Json], ...]  # a pattern, or a step as it stands in the file
    is_composed: bool = False  # NFC comes first
    ignores_merges: bool = False  # a pre-token that is a token is not merged
    adds_start: bool = False  # unless the file says otherwise


_gpt2, _starcoder = _Scheme((_GPT2,)), _Scheme((_DIGIT, _GPT2))
_qwen2 = _Scheme((_QWEN2, _BYTES), is_composed=True)
_llama3 = _Scheme((_LLAMA3, _BYTES), ignores_merges=True, adds_start=True)
_PIECES = _Scheme((), adds_start=True)  # SentencePiece's, which splits nothing
_SCHEMES = {  # by their names in GGUF files
    **dict.fromkeys(("gpt-2", "mellum", "phi-2"), _gpt2),
    **dict.fromkeys(("mpt", "olmo"), replace(_gpt2, is_composed=True)),
    **dict.fromkeys(("codeshell", "mellum2", "refact", "smollm", "starcoder"), _starcoder),
    "command-r": replace(_starcoder, is_composed=True),
    **dict.fromkeys(("qwen2", "stablelm2"), _qwen2),
    "qwen35": replace(_qwen2, steps=(_QWEN35, _BYTES)),
    **dict.fromkeys(("falcon3", "llama-bpe", "llama-v3", "llama3"), _llama3),
    "tekken": replace(_llama3, steps=(_TEKKEN, _BYTES)),
    "dbrx": replace(_llama3, ignores_merges=False, adds_start=False),
    **dict.fromkeys(("gpt-4o", "llama4"), _Scheme((_O200K, _BYTES))),
    "minimax-m2": _Scheme((_O200K, _BYTES), is_composed=True),
    "seed-coder": _Scheme((_SEED, _BYTES)),
    "deepseek-coder": _Scheme(("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CJK, _DIGIT, _BYTES)),
    "deepseek-llm": _Scheme(("[\r\n]", _DEEPSEEK_LETTERS, _DEEPSEEK_SIGNS, r"\s+$", _CJK, _DIGIT, _BYTES)),
    "deepseek-v3": _Scheme((r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", _DEEPSEEK_V3, _BYTES)),
}
_NORMAL, _UNKNOWN, _USER_DEFINED, _BYTE = 1, 2, 4, 6  # types of a token in a GGUF file; the others are no text
_KEY = "tokenizer.ggml."
_MAX_LAYERS = 512  # of llama.cpp
_MARKER_KEYS = {"prefix": "fim_pre", "suffix": "fim_suf", "middle": "fim_mid"}  # older name -> newer name
_END_KEYS = ("eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep")
_END_NAMES = (  # control tokens that end a text, in a file that names another one or none
    *("<|endoftext|>", "<|end_of_text|>", "<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>"),
    *("<EOT>", "▁<EOT>", "<eos>", "<｜end▁of▁sentence｜>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"),
)
_FLAGS = dict.fromkeys(("special", "normalized", "single_word", "lstrip", "rstrip"), False)  # of an added token
_MARK = "▁"  # SentencePiece's for a blank


def write_folder_files(metadata: Mapping[str, _Json]) -> dict[str, _Json]:
    """Returns the contents of a model folder's files, by name, for the metadata of a GGUF file.

    Raises ModelError, or another error if the metadata are not as llama.cpp writes them.
    """
    if metadata.get("general.type", "model") != "model":
        raise ModelError(f"it is not a model by itself, but of the type {quote(str(metadata['general.type']))}")
    scheme, architecture = _find_scheme(metadata), metadata["general.architecture"]
    if (num_layers := metadata.get(f"{architecture}.block_count", 0)) > _MAX_LAYERS:
        raise ModelError(f"it has {num_layers} layers ({architecture}.block_count), and {_MAX_LAYERS} can run at most")
    tokens = [token or f"[EMPTY_{token_id}]" for token_id, token in enumerate(metadata[f"{_KEY}tokens"])]
    vocab = {token: token_id for token_id, token in enumerate(tokens)}
    if len(vocab) < len(tokens):
        raise ModelError("it has two tokens with the same text, which llama.cpp refuses")
    ids: dict[str, _Json] = {key: metadata.get(f"{_KEY}{key}_token_id") for key in ("bos", *_END_KEYS, *_MARKER_KEYS)}
    ids |= {old: metadata.get(f"{_KEY}{new}_token_id", ids[old]) for old, new in _MARKER_KEYS.items()}
    named = {token_id for token_id, token in enumerate(metadata[f"{_KEY}tokens"]) if not token}.union(ids.values())
    types = metadata.get(f"{_KEY}token_type") or [_NORMAL] * len(tokens)
    added = [
        _FLAGS | {"id": token_id, "content": token, "special": is_control, "normalized": scheme is not _PIECES}
        for token_id, (token, token_type) in enumerate(zip(tokens, types, strict=True))
        if (is_control := token_type not in (_NORMAL, _USER_DEFINED, _BYTE) or token_id in named)
        or token_type == _USER_DEFINED
    ]
    ends = {each["id"] for each in added if each["special"] and each["content"] in _END_NAMES}
    if scheme is _PIECES:
        rest = _write_pieces(vocab, types, metadata)
    else:
        rest = _write_bytes(scheme, vocab, metadata[f"{_KEY}merges"])
    files = {
        "config.json": {
            "model_type": "gguf",
            "architecture": architecture,
            "max_position_embeddings": metadata[f"{architecture}.context_length"],
            "vocab_size": len(tokens),
            "eos_token_id": sorted((ends | {ids[key] for key in _END_KEYS}) - {None}),
        },
        "tokenizer.json": {"added_tokens": added, **rest},
    }
    if ids["bos"] is not None:
        adds_start = metadata.get(f"{_KEY}add_bos_token", scheme.adds_start)
        files["tokenizer_config.json"] = {"bos_token": tokens[ids["bos"]], "add_bos_token": adds_start}
    if all(ids[name] is not None for name in _MARKER_KEYS):
        files["midtoken.json"] = {"fill_in": {name: tokens[ids[name]] for name in _MARKER_KEYS}}
    return files


def _find_scheme(metadata: Mapping[str, _Json]) -> _Scheme:
    kind, name = (str(metadata.get(f"{_KEY}{key}", "missing")) for key in ("model", "pre"))
    if kind not in ("gpt2", "llama"):
        raise ModelError(
            f"its tokenizer is of the kind {quote(kind)}, and only gpt2 and llama, both BPE, are supported"
        )
    if kind == "gpt2" and name not in _SCHEMES:
        known = ", ".join(sorted(_SCHEMES))
        raise ModelError(f"its pre-tokenizer (tokenizer.ggml.pre) is {quote(name)}, and only {known} are supported")
    return _SCHEMES[name] if kind == "gpt2" else _PIECES


def _write_bytes(scheme: _Scheme, vocab: Mapping[str, int], merges: Iterable[str]) -> dict[str, _Json]:
    """Byte-level BPE. A merge is two tokens with a blank between them."""
    split = {"type": "Split", "behavior": "Isolated", "invert": False}
    steps = [{**split, "pattern": {"Regex": step}} if isinstance(step, str) else step for step in scheme.steps]
    pairs = [merge.split(" ") for merge in merges]
    return {
        "normalizer": {"type": "NFC"} if scheme.is_composed else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
        "decoder": _BYTES,
        "model": {"type": "BPE", "vocab": vocab, "merges": pairs, "ignore_merges": scheme.ignores_merges},
    }


def _write_pieces(vocab: Mapping[str, int], types: list[int], metadata: Mapping[str, _Json]) -> dict[str, _Json]:
    """SentencePiece's BPE of characters. Its merges follow from the scores of the tokens: the highest comes first."""
    scores = metadata[f"{_KEY}scores"]
    texts = sorted((text for text, i in vocab.items() if types[i] == _NORMAL), key=lambda text: -scores[vocab[text]])
    pieces = frozenset(texts)
    merges = [
        (text[:at], text[at:])
        for text in texts
        for at in range(1, len(text))
        if text[:at] in pieces and text[at:] in pieces
    ]
    steps = [{"type": "Replace", "pattern": {"String": " "}, "content": _MARK}]
    if metadata.get(f"{_KEY}add_space_prefix", True):
        steps.insert(0, {"type": "Prepend", "prepend": _MARK})
    unknown = next((text for text, token_id in vocab.items() if types[token_id] == _UNKNOWN), None)
    return {
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "decoder": {"type": "Replace", "pattern": {"String": _MARK}, "content": " "},
        "model": {"type": "BPE", "vocab": vocab, "merges": merges, "byte_fallback": True, "unk_token": unknown},
    }
