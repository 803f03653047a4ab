"""Writes a model folder as a user would have it, with random weights: configuration, weights and tokenizer."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

Config = Any  # a transformers configuration, which has no types

START_NAME, END_NAME = "<|start|>", "<|end|>"
NUM_SPECIAL_TOKENS = 8  # the first ids, among them the ones that families use for padding
START_ID, END_ID = 4, 5
_NUM_TOKENS = 304
_TEXT = "def add(self, other):\n    return self.total + other.total\n" * 8
_GAIN = 2.0  # of each layer; with less, attention is so even that a wrong mask hardly shows


def write_folder(folder: Path, config: Config, class_name: str | None = None) -> None:
    """Writes the folder of a model with this configuration. Raises whatever transformers raises if it cannot be built.

    `class_name`: the class in transformers, by default that of the family's causal decoder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _write_tokenizer(folder)
    torch.manual_seed(0)
    if class_name is None:
        model = transformers.AutoModelForCausalLM.from_config(config)
    else:
        model = getattr(transformers, class_name)(config)
    _draw_weights(model)
    model.save_pretrained(folder)
    if model.config.model_type != config.model_type:  # the class has written only its part of the configuration
        config.architectures = [type(model).__name__]
        config.save_pretrained(folder)


def write_raw_folder(folder: Path, config: Mapping[str, Any]) -> None:
    """Writes the folder of a model that transformers cannot build here. Its file of weights has one tensor."""
    folder.mkdir(parents=True, exist_ok=True)
    _write_tokenizer(folder)
    (folder / "config.json").write_text(json.dumps(config))
    save_file({"embed_tokens.weight": torch.zeros(8, 8)}, folder / "model.safetensors", {"format": "pt"})


@torch.no_grad()
def _draw_weights(model: torch.nn.Module) -> None:
    """Draws all weights, also those of norms and sinks, so that no zero or one hides a difference."""
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if parameter.ndim < 2:
            parameter.add_(0.2 * noise)
        else:
            parameter.copy_(noise * _GAIN / math.sqrt(parameter.shape[-1]))


def _write_tokenizer(folder: Path) -> None:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    specials = [f"<|special_{index}|>" for index in range(NUM_SPECIAL_TOKENS)]
    specials[START_ID], specials[END_ID] = START_NAME, END_NAME
    trainer = trainers.BpeTrainer(
        vocab_size=_NUM_TOKENS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=specials,
        show_progress=False,
    )
    tokenizer.train_from_iterator([_TEXT], trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    names: dict[str, Any] = {"bos_token": START_NAME, "eos_token": END_NAME}
    (folder / "tokenizer_config.json").write_text(json.dumps(names))
