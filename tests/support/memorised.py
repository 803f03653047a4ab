"""A model folder whose tiny model has learned a few documents by heart."""

from collections.abc import Sequence
from pathlib import Path

import torch
import transformers

from inference.engine.layout import Layout
from inference.engine.marker_check import SAMPLES
from inference.healing.heal_point import encode_section
from tests.support.toys import END, ToyTokenizer, build_prompts, toy_tokenizer, write_model

_NUM_STEPS = 120


def build_marker_documents(kind: str, layout: Layout | None) -> tuple[ToyTokenizer, list[list[int]]]:
    """Returns the samples of the marker check as training documents, in a layout or as plain text."""
    toy = toy_tokenizer(kind)
    start = end = toy.vocabulary.special_tokens[END]
    documents = []
    for sample in SAMPLES:
        parts = (sample.prefix, sample.part, sample.remaining, sample.suffix)
        prefix, part, remaining, suffix = (encode_section(toy.encoder, text) for text in parts)
        fill_in = None if layout is None else build_prompts(toy, layout).fill_in
        if fill_in is None:
            documents.append([start, *prefix, *part, *remaining, *suffix, end])
        else:
            laid_out = fill_in.lay_out(prefix, suffix, b"", toy.vocabulary.token_bytes)
            documents.append([start, *laid_out, *part, *remaining, end])
    return toy, documents


def write_memorised_model(folder: Path, toy: ToyTokenizer, documents: Sequence[Sequence[int]]) -> Path:
    """Writes a model folder like `write_model`, after some steps of training on the documents (token ids)."""
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
