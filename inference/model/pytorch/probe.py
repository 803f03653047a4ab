"""Measures what a model's attention is called with."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from inference.healing.token_tree import TokenTree
from inference.model.pytorch.planes import LayerShape
from inference.model.pytorch.segment import Segment, build_tree_mask


@dataclass(slots=True)
class Probe:
    """A store for one segment without earlier tokens. It keeps no keys and values, only their shapes."""

    layers: list[LayerShape] = field(default_factory=list)  # in the order of the calls

    def write(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:  # noqa: ARG002  # calls come in order
        """Records the shape of the keys and values; returns them."""
        self.layers.append(LayerShape(keys.shape[0], keys.shape[2], values.shape[2]))
        return keys, values

    def find_key_positions(self, depths: torch.Tensor) -> torch.Tensor:
        """The positions of the rows themselves."""
        return depths

    def build_segment(self, positions: Sequence[int], first_row: int, device: torch.device) -> Segment:
        """A segment of tokens at `positions`, each of which sees those before it."""
        mask = build_tree_mask(TokenTree((0,) * len(positions)), 0)
        depths = torch.tensor(positions, device=device)
        return Segment(self, first_row, len(positions), depths, None if mask is None else mask.to(device))
