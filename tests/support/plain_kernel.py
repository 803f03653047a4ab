"""An attention kernel in plain torch."""

import torch

from inference.model.pytorch.attention import PackedPass
from inference.model.pytorch.transformers_hook import Reach, ScoreRule


class PlainKernel:
    """Attention of each row of each tile by itself, from nothing but what a kernel gets."""

    def attend(
        self, packed: PackedPass, keys: torch.Tensor, values: torch.Tensor, query: torch.Tensor, rule: ScoreRule
    ) -> torch.Tensor:
        group = query.shape[0] // keys.shape[0]
        out = query.new_full((query.shape[1], query.shape[0], values.shape[2]), torch.nan)
        for first_row, num_rows, first_key, end, _, num_open, first_word, num_words in packed.tiles.tolist():
            slots = packed.key_slots[first_key : first_key + end]
            places = packed.key_positions[first_key : first_key + end].tolist()
            for row in range(num_rows):
                words = packed.bits[first_word + row * num_words :][:num_words].tolist()
                bits = [(words[at // 64] >> (at % 64)) & 1 for at in range(end - num_open)]
                own = int(packed.positions[first_row + row])
                sees = [
                    (key < num_open or bits[key - num_open] == 1) and _is_near(own, places[key], rule.reach)
                    for key in range(end)
                ]
                for head in range(query.shape[0]):
                    states = keys[head // group, slots][sees], values[head // group, slots][sees]
                    scores = states[0] @ query[head, first_row + row] * rule.scale
                    if rule.softcap is not None:
                        scores = (scores / rule.softcap).tanh() * rule.softcap
                    weights = torch.softmax(scores, dim=0)
                    out[first_row + row, head] = weights @ states[1]
        return out


def _is_near(own: int, other: int, reach: Reach) -> bool:
    if reach.chunk is not None:
        return own // reach.chunk == other // reach.chunk
    return reach.window is None or own - other < reach.window
