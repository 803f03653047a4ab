"""What a model answers after some tokens, run by transformers alone: the judge of the product's answers."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers

from benchmarks.measures.families.packed_passes import Answer


@dataclass(frozen=True, slots=True)
class Difference:
    """The largest difference between the product's answers and the right ones."""

    stage: str
    num_tokens: int
    share: float  # root mean square of the differences, divided by the standard deviation of the right logits


class LonePasses:
    """A model folder, run in the plainest way: one sequence in each pass, no cache, no packing, attention "eager"."""

    def __init__(self, folder: Path) -> None:
        self._model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager", local_files_only=True
        ).eval()
        self._known: dict[tuple[int, ...], torch.Tensor] = {}

    def find_largest_difference(self, answers: Iterable[Answer]) -> Difference:
        """The answer that differs most, or the first one that is no number."""
        differences = [Difference(answer.stage, len(answer.token_ids), self._compare(answer)) for answer in answers]
        broken = [difference for difference in differences if difference.share != difference.share]
        return broken[0] if broken else max(differences, key=lambda difference: difference.share)

    def _compare(self, answer: Answer) -> float:
        right = self.find_logits(answer.token_ids)
        if answer.columns is not None:
            right = right[answer.columns].log_softmax(dim=0)
            num_texts = len(answer.logits) - 1
            right = torch.cat([right[:num_texts], right[num_texts:].logsumexp(dim=0, keepdim=True)])
        difference = (answer.logits - right).pow(2).mean().sqrt() / right.std()
        return difference.item()

    @torch.inference_mode()
    def find_logits(self, token_ids: tuple[int, ...]) -> torch.Tensor:
        """The logits after all of these tokens, and no others, were read."""
        if token_ids not in self._known:
            ids = torch.tensor([token_ids])
            self._known[token_ids] = self._model(input_ids=ids, use_cache=False).logits[0, -1].float()
        return self._known[token_ids]
