"""The bundled model, grown to the shape of a real one: as large and as slow as that, but it writes the same text.

Weights without a meaning would do for the time of a pass. That of a line depends on the text: where it ends, and how
often a guess of what follows is right. So the bundled model's weights are put into matrices of the real shape. What is
added has random weights, and is multiplied by zeros before it is added to the hidden state. The added tokens have names
of a real vocabulary, no merges, and a logit that is far below all others.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file, save_file

from benchmarks.corpora.large_tokenizer import read_large_vocabulary
from inference.healing.vocabulary_file import BYTE_LEVEL_ALPHABET

SOURCE = Path("models/default")
_MARK, _LOW = 1e-3, -512.0  # a number that stands in the hidden state of every token, and its factor for added tokens
_MARK_WEIGHT = 1024.0  # in the last norm; other norms do not see it

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a decoder, as its `config.json` names them."""

    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    tie_word_embeddings: bool = True  # the head is the table of embeddings


SHAPES = {
    "0_5b": Shape(896, 24, 14, 2, 64, 4864, 151_643),  # of Qwen2.5-Coder
    "short": Shape(512, 6, 8, 2, 64, 1024, 10_000),  # to see that benchmarks run
}


def write_grown_model(folder: Path, shape: Shape) -> None:
    """Writes the model to a new folder, in bfloat16 as such models are published."""
    config = json.loads((SOURCE / "config.json").read_text())
    tokenizer = json.loads((SOURCE / "tokenizer.json").read_text())
    tensors = _Grower(config, shape, load_file(SOURCE / "model.safetensors")).grow()
    folder.mkdir(parents=True)
    save_file(dict(tensors), folder / "model.safetensors")
    sizes = {name: getattr(shape, name) for name in shape.__slots__}
    config |= sizes | {"rms_norm_eps": config["rms_norm_eps"] * config["hidden_size"] / shape.hidden_size}
    (folder / "config.json").write_text(json.dumps(config))
    tokenizer["model"]["vocab"] |= _name_added(tokenizer, shape.vocab_size)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    for name in ("tokenizer_config.json", "midtoken.json"):
        (folder / name).write_bytes((SOURCE / name).read_bytes())


def _name_added(tokenizer: dict[str, Any], vocab_size: int) -> dict[str, int]:
    known = tokenizer["model"]["vocab"].keys() | {token["content"] for token in tokenizer["added_tokens"]}
    names = ("".join(BYTE_LEVEL_ALPHABET[byte] for byte in data) for data in read_large_vocabulary().token_bytes)
    return dict(zip((name for name in names if name not in known), range(len(known), vocab_size), strict=False))


@dataclass(frozen=True, slots=True)
class _Grower:
    config: dict[str, Any]
    shape: Shape
    tensors: dict[str, Array]

    def grow(self) -> Iterator[tuple[str, Array]]:
        shape, rng = self.shape, np.random.default_rng(0)
        queries, keys = (shape.head_dim * num for num in (shape.num_attention_heads, shape.num_key_value_heads))
        sizes = {
            "self_attn.q_proj": (queries, shape.hidden_size),
            "self_attn.k_proj": (keys, shape.hidden_size),
            "self_attn.v_proj": (keys, shape.hidden_size),
            "self_attn.o_proj": (shape.hidden_size, queries),
            "mlp.gate_proj": (shape.intermediate_size, shape.hidden_size),
            "mlp.up_proj": (shape.intermediate_size, shape.hidden_size),
            "mlp.down_proj": (shape.hidden_size, shape.intermediate_size),
        }
        yield "model.embed_tokens.weight", self._grow_embeddings(rng)
        yield "model.norm.weight", self._grow_norm("model.norm.weight", _MARK_WEIGHT)
        for layer in range(shape.num_hidden_layers):
            for name, size in sizes.items():
                yield (
                    f"model.layers.{layer}.{name}.weight",
                    self._grow_linear(f"model.layers.{layer}.{name}", size, rng),
                )
            for name in ("input_layernorm", "post_attention_layernorm"):
                name = f"model.layers.{layer}.{name}.weight"
                yield name, self._grow_norm(name, 0)

    def _grow_embeddings(self, rng: np.random.Generator) -> Array:
        own = self.tensors["model.embed_tokens.weight"].astype(np.float32)
        num_tokens, size = own.shape
        grown = 0.02 * rng.standard_normal((self.shape.vocab_size, self.shape.hidden_size), np.float32)
        grown[:num_tokens] = 0
        grown[:num_tokens, :size] = own
        grown[:num_tokens, size] = _MARK
        grown[num_tokens:, : size + 1] = 0
        grown[num_tokens:, size] = _LOW
        return grown.astype(ml_dtypes.bfloat16)

    def _grow_norm(self, name: str, mark_weight: float) -> Array:
        """The mean of the squares is smaller, because most of the numbers are 0."""
        size = self.config["hidden_size"]
        grown = np.zeros(self.shape.hidden_size, np.float32)
        if name in self.tensors:
            grown[:size] = self.tensors[name].astype(np.float32) * math.sqrt(size / self.shape.hidden_size)
        grown[size] = mark_weight
        return grown.astype(ml_dtypes.bfloat16)

    def _grow_linear(self, path: str, size: tuple[int, int], rng: np.random.Generator) -> Array:
        is_last = path.endswith(("o_proj", "down_proj"))  # added to the hidden state: nothing that is new
        grown = np.zeros(size, np.float32) if is_last else rng.standard_normal(size, np.float32) * size[1] ** -0.5
        if (own := self.tensors.get(f"{path}.weight")) is not None:
            outputs, inputs = self._find_places(path.rpartition(".")[2], own.shape)
            factor = math.sqrt(self.shape.head_dim / self.config["head_dim"]) if path.endswith("q_proj") else 1
            grown[outputs] = 0
            grown[np.ix_(outputs, inputs)] = factor * own.astype(np.float32)
        return grown.astype(ml_dtypes.bfloat16)

    def _find_places(self, name: str, size: tuple[int, ...]) -> tuple[Array, Array]:
        """The rows and the columns of the grown matrix that are those of the own one."""
        outputs, inputs = (np.arange(number) for number in size)
        if name == "q_proj":
            outputs = self._find_head_places(self.shape.num_attention_heads, self.config["num_attention_heads"])
        elif name in ("k_proj", "v_proj"):
            outputs = self._find_head_places(self.shape.num_key_value_heads, self.config["num_key_value_heads"])
        elif name == "o_proj":
            inputs = self._find_head_places(self.shape.num_attention_heads, self.config["num_attention_heads"])
        return outputs, inputs

    def _find_head_places(self, num_grown: int, num_own: int) -> Array:
        """Heads go to the heads with the same keys, and a pair of numbers to one that is turned by the same angle."""
        num_kv = self.config["num_key_value_heads"]
        heads = [
            head // (num_own // num_kv) * (num_grown // num_kv) + head % (num_own // num_kv) for head in range(num_own)
        ]
        step = self.shape.head_dim // self.config["head_dim"]
        return np.concatenate([head * self.shape.head_dim + np.arange(0, self.shape.head_dim, step) for head in heads])
