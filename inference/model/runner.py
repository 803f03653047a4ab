"""Forward passes of a model on its device: token trees in, next-token logits out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from inference.healing.token_tree import TokenTree
from inference.model.attention import Segment
from inference.model.kv_cache import CacheShape, RowStore, SequenceCache
from inference.model.memory import refusing_when_out_of_memory


@dataclass(frozen=True, slots=True)
class Part:
    """One sequence's part in a forward pass."""

    cache: SequenceCache
    tree: TokenTree
    wants_logits: bool = True  # False while a long prompt is prefilled


class Runner:
    """A causal language model that forwards the token trees of several sequences in one pass."""

    def __init__(self, model: torch.nn.Module, device: torch.device) -> None:
        """`model`: loaded with `attn_implementation=ATTENTION_NAME`, as by `load_runner`."""
        self._model = model.eval()
        self.device = device
        config = model.config.get_text_config()  # type: ignore[operator,union-attr]  # transformers is untyped
        num_heads = config.num_attention_heads
        self.cache_shape = CacheShape(
            num_layers=config.num_hidden_layers,
            num_kv_heads=getattr(config, "num_key_value_heads", None) or num_heads,
            head_dim=getattr(config, "head_dim", None) or config.hidden_size // num_heads,
        )
        self.dtype = next(model.parameters()).dtype
        self.vocab_size: int = model.get_output_embeddings().weight.shape[0]  # type: ignore[operator]
        self.max_tokens = _find_max_tokens(config)

    def new_cache(self, num_tokens: int = 256) -> SequenceCache:
        """An empty cache with room for `num_tokens`. Raises OverloadedError."""
        return SequenceCache(self.cache_shape, self.dtype, self.device, num_tokens)

    def new_row_store(self) -> RowStore:
        """An empty store for token strings that share their beginnings. Raises OverloadedError."""
        return RowStore(self.cache_shape, self.dtype, self.device)

    @torch.inference_mode()
    def forward(self, parts: Sequence[Part]) -> torch.Tensor:
        """Next-token logits after each node of the parts that want them, part by part.

        A part gives 1 + num_branches rows: the end of its chain, then its branches. Afterwards call `cache.keep` once
        for each part. Returns [num_nodes, vocab_size] float32, device. Raises OverloadedError; the kept tokens of the
        caches are then unchanged.
        """
        ids: list[int] = []
        wanted_rows: list[int] = []
        plan: list[Segment] = []
        for part in parts:
            part.cache.reserve(part.tree.num_rows)
            plan.append(part.cache.build_segment(part.tree, len(ids)))
            ids += [*part.tree.chain_ids, *part.tree.branch_ids]
            if part.wants_logits:
                wanted_rows += range(len(ids) - len(part.tree.branch_ids) - 1, len(ids))
        return self._forward(ids, plan, wanted_rows)

    @torch.inference_mode()
    def forward_segment(self, token_ids: Sequence[int], segment: Segment, wanted_rows: Sequence[int]) -> torch.Tensor:
        """Next-token logits after some of the segment's rows, whose tokens are `token_ids`.

        Returns [num_wanted, vocab_size] float32, device. Raises OverloadedError.
        """
        return self._forward(token_ids, [segment], wanted_rows)

    def _forward(self, token_ids: Sequence[int], plan: list[Segment], wanted_rows: Sequence[int]) -> torch.Tensor:
        with refusing_when_out_of_memory(f"a forward pass over {len(token_ids)} tokens"):
            output = self._model(
                input_ids=torch.tensor([token_ids], device=self.device),
                position_ids=torch.cat([segment.depths for segment in plan])[None],
                use_cache=False,
                logits_to_keep=torch.tensor(wanted_rows, dtype=torch.long, device=self.device),
                plan=plan,
            )
            logits: torch.Tensor = output.logits[0].float()
        return logits


def _find_max_tokens(config: Any) -> int:  # a transformers configuration, which has no types
    """The maximum number of tokens in a sequence.

    Once one sequence is longer than the original window, "longrope" uses other frequencies for the whole pass. The
    length of one request would then change the logits of another, so sequences are limited to that window.
    """
    max_tokens: int = getattr(config, "max_position_embeddings", None) or 2048
    rope = getattr(config, "rope_parameters", None) or {}
    for parameters in (rope, *rope.values()):  # of all layers, or of each layer type
        if isinstance(parameters, dict) and parameters.get("rope_type") == "longrope":
            max_tokens = min(max_tokens, parameters.get("original_max_position_embeddings") or max_tokens)
    return max_tokens
