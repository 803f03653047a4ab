"""A model folder whose tiny model has learned a few documents by heart."""

from pathlib import Path

import torch
import transformers

from inference.engine.fill_in import SAMPLES, Layout
from inference.healing.heal_point import encode_section
from tests.support.decoder_folders import write_model
from tests.support.toys import END, ToyTokenizer, build_prompts, toy_tokenizer

_NUM_STEPS = 120


def write_memorised_model(folder: Path, layout: Layout | None) -> Path:
    """Writes a model folder like `write_model`, after some steps of training on the samples of the marker check.

    They are in a layout, or plain text.
    """
    toy = toy_tokenizer("qwen")
    documents = [_build_document(toy, sample, layout) for sample in SAMPLES]
    write_model(folder, toy, hidden_size=64, intermediate_size=128, initializer_range=0.05)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    width = max(map(len, documents))
    inputs = torch.tensor([[*ids, *[0] * (width - len(ids))] for ids in documents])
    labels = torch.tensor([[*ids, *[-100] * (width - len(ids))] for ids in documents])
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    for _ in range(_NUM_STEPS):
        model(input_ids=inputs, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(folder)
    return folder


def _build_document(toy: ToyTokenizer, sample: tuple[str, ...], layout: Layout | None) -> list[int]:
    prefix, part, remaining, suffix = (encode_section(toy.encoder, text) for text in sample)
    end = toy.vocabulary.special_tokens[END]
    fill_in = None if layout is None else build_prompts(toy, layout).fill_in
    if fill_in is None:
        return [end, *prefix, *part, *remaining, *suffix, end]
    return [end, *fill_in.lay_out(prefix, suffix, b"", toy.vocabulary.token_bytes), *part, *remaining, end]
