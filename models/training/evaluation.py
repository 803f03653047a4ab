"""Measures how well a model predicts the held-out files."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from tokenizers import Tokenizer
from torch.nn.functional import cross_entropy

from models.training.corpus import SourceFile

_STRIDE = 1024


def measure_bits_per_byte(
    model: Any, tokenizer: Tokenizer, files: Iterable[SourceFile]
) -> float:  # Any: a causal model
    """Returns the mean over all bytes of the files. Every 1,024 tokens are scored after the 1,024 before."""
    device = next(model.parameters()).device
    nats, num_bytes = 0.0, 0
    for file in files:
        ids = torch.tensor([0, *tokenizer.encode(file.text, add_special_tokens=False).ids], device=device)
        num_bytes += len(file.text.encode())
        for start in range(0, len(ids) - 1, _STRIDE):
            seen = max(start - _STRIDE, 0)
            row = ids[seen : start + _STRIDE + 1]
            with torch.inference_mode():
                logits = model(input_ids=row[None, :-1], use_cache=False).logits[0, start - seen :].float()
            nats += cross_entropy(logits, row[1 + start - seen :], reduction="sum").item()
    return nats / math.log(2) / num_bytes
