"""GGUF files with the tokenizer of a `tokenizer.json`, as llama.cpp's converter writes it; without weights."""

import json
import re
from pathlib import Path
from typing import Any

import gguf
import numpy as np

_Json = Any
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = range(1, 7)
_CONTROL_LOOK = re.compile(r"<\|.*\|>|<｜.*｜>|<unused.*>|<pad>|<mask>")


def write_gguf(path: Path, spec: _Json, pre: str | None, **values: _Json) -> Path:
    """Writes the file. `pre`: the name of the pre-tokenizer. `values`: other metadata, by key; None: none."""
    pieces = bool(spec["model"].get("byte_fallback"))
    tokens, types = _list_tokens(spec, pieces)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(2048)
    writer.add_tokenizer_model("llama" if pieces else "gpt2")
    if pre is not None:
        writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    if pieces:
        writer.add_token_scores(_find_scores(spec, tokens))
        prepends = "Prepend" in json.dumps(spec["normalizer"])
        writer.add_add_space_prefix(prepends)
    else:
        writer.add_token_merges([_join_merge(pair) for pair in spec["model"]["merges"]])
    add = {bool: writer.add_bool, int: writer.add_uint32, str: writer.add_string, list: writer.add_array}
    for key, value in values.items():
        writer.kv_data[0].pop(key, None)
        if value is not None:
            add[type(value)](key, value)
    _finish(writer, num_tensors=1)
    return path


def find_end(spec: _Json) -> int:
    """Any token that is no text."""
    return next(int(added["id"]) for added in spec["added_tokens"] if added["special"])


def write_plain_gguf(path: Path, num_parts: int = 0) -> Path:
    """Writes a file with tensors and hardly any metadata; or a part of several."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("a name " * 40)
    if num_parts:
        writer.add_uint16("split.count", num_parts)
    _finish(writer, num_tensors=2)
    return path


def _finish(writer: gguf.GGUFWriter, num_tensors: int) -> None:
    for number in range(num_tensors):
        writer.add_tensor(f"blk.{number}", np.zeros(32, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _list_tokens(spec: _Json, pieces: bool) -> tuple[list[str], list[int]]:
    found = {token_id: (piece, _NORMAL) for piece, token_id in spec["model"]["vocab"].items()}
    for added in spec["added_tokens"]:
        content = added["content"]
        is_control = added["special"] or _CONTROL_LOOK.fullmatch(content)
        found[added["id"]] = (content, _CONTROL) if is_control else (content.replace("▁", " "), _USER_DEFINED)
    for token_id, (piece, _) in list(found.items()):
        if pieces and re.fullmatch("<0x[0-9A-F]{2}>", piece):
            found[token_id] = (piece, _BYTE)
        elif pieces and piece == spec["model"].get("unk_token"):
            found[token_id] = (piece, _UNKNOWN)
    listed = [found.get(token_id, (f"[PAD{token_id}]", _UNUSED)) for token_id in range(max(found) + 1)]
    return [token for token, _ in listed], [kind for _, kind in listed]


def _find_scores(spec: _Json, tokens: list[str]) -> list[float]:
    """The tokens that are merged first have the highest; runs of blanks have the lowest, if they are merged last."""
    made = list(dict.fromkeys("".join(_split_merge(pair)) for pair in spec["model"]["merges"]))
    scores = {token: -float(rank) for rank, token in enumerate(made)}
    if set(made[-1]) == {"▁"}:
        scores |= {token: -1e9 for token in made if set(token) == {"▁"}}
    return [scores.get(token, 0.0) for token in tokens]


def _split_merge(pair: str | list[str]) -> list[str]:
    return pair.split(" ") if isinstance(pair, str) else pair


def _join_merge(pair: str | list[str]) -> str:
    return pair if isinstance(pair, str) else " ".join(pair)
