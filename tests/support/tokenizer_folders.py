"""Model folders with a changed tokenizer, and the product's objects for them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from inference.healing.loaded_tokenizer import LoadedTokenizer, load_tokenizer
from tests.support.toys import END, FIM_NAMES, toy_tokenizer

_Json = Any  # the content of a tokenizer.json

BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


@dataclass(frozen=True)
class Subject:
    """A loaded tokenizer, and the library's own without control tokens."""

    loaded: LoadedTokenizer
    oracle: Tokenizer
    ids: dict[int, int]  # the oracle's id of an added token -> that of the file

    def encode(self, text: str) -> tuple[int, ...]:
        """Encodes a whole text with the `tokenizers` library."""
        return tuple(
            self.ids.get(token_id, token_id) for token_id in self.oracle.encode(text, add_special_tokens=False).ids
        )

    def join(self, token_ids: Sequence[int]) -> bytes:
        """Returns the joined bytes of the tokens."""
        return b"".join(self.loaded.vocabulary.token_bytes[token_id] for token_id in token_ids)


def spec_of(kind: str, **changes: _Json) -> _Json:
    """Returns the `tokenizer.json` of a toy with other parts. `model` and `added` are added to what is there."""
    spec = json.loads(toy_tokenizer(kind).tokenizer.to_str())
    spec["model"] |= changes.pop("model", {})
    vocab, flags = spec["model"]["vocab"], ("single_word", "lstrip", "rstrip", "normalized", "special")
    for token in changes.pop("added", []):
        next_id = 1 + max(*vocab.values(), *(other["id"] for other in spec["added_tokens"]))
        token_id = vocab.get(token["content"], next_id)
        spec["added_tokens"].append(dict.fromkeys(flags, False) | {"id": token_id} | token)
    return spec | changes


def split(pattern: str, behavior: str = "Isolated", invert: bool = False) -> _Json:
    """Returns a pre-tokenizer step that splits by a regular expression."""
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert}


def sequence(*steps: _Json) -> _Json:
    """Returns a pre-tokenizer of several steps."""
    return {"type": "Sequence", "pretokenizers": list(steps)}


def add(*contents: str, **flags: bool) -> list[_Json]:
    """Returns items of `added_tokens`."""
    return [{"content": content, **flags} for content in contents]


def write_folder(folder: Path, spec: _Json) -> Path:
    """Writes the files that belong to a tokenizer."""
    (folder / "tokenizer.json").write_text(json.dumps(spec))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": END}))
    return folder


def load_subject(folder: Path, spec: _Json) -> Subject:
    """Loads a tokenizer as a model folder's. Raises ModelError if it is refused."""
    loaded = load_tokenizer(write_folder(folder, spec))
    marks = (END, *FIM_NAMES, "<|begin_of_text|>", "<unk>", "<tool_call>")
    texts = [token for token in spec["added_tokens"] if token["content"] not in marks]
    oracle = Tokenizer.from_str(json.dumps({**spec, "added_tokens": texts, "post_processor": None}))
    oracle.no_truncation()
    oracle.no_padding()
    ids = {oracle.token_to_id(token["content"]): token["id"] for token in texts}
    return Subject(loaded, oracle, {key: value for key, value in ids.items() if key is not None})
