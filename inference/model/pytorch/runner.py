"""Forward passes of a model on its device: token trees in, next-token logits out."""

import inspect
from collections.abc import Sequence
from typing import Any

import torch

from inference.errors import MidtokenError, ModelError
from inference.model.language_model import Part
from inference.model.pytorch.attention import OWN_ATTENTION, Plan, attach_plans
from inference.model.pytorch.kv_cache import RowStore, SequenceCache
from inference.model.pytorch.memory import refusing_when_out_of_memory
from inference.model.pytorch.planes import LayerShape
from inference.model.pytorch.probe import Probe
from inference.model.pytorch.segment import Segment

_MAX_TOKENS = 2048  # if the configuration names no limit


class Runner:
    """A causal language model that forwards the token trees of several sequences in one pass."""

    def __init__(self, model: torch.nn.Module, device: torch.device) -> None:
        """Forwards two tokens, to find the shape of each layer's keys and values.

        `model`: loaded with `attn_implementation=ATTENTION_NAME`, as by `load_runner`. Raises ModelError.
        """
        self._model = model.eval()
        self._plans = attach_plans(model)
        self.device = device
        self.dtype = next(model.parameters()).dtype
        self.max_tokens = _read_max_tokens(model)
        self._selects_rows = "logits_to_keep" in inspect.signature(model.forward).parameters
        self.layers: tuple[LayerShape, ...]
        self.layers, self.vocab_size = self._measure()

    def _measure(self) -> tuple[tuple[LayerShape, ...], int]:
        """Forwards two tokens. Returns the shapes of keys and values, and the number of logits of a row."""
        probe = Probe()
        plan = Plan([probe.build_segment(range(2), 0, self.device)])
        try:
            logits = self.forward_plan((0, 0), plan, (1,))
        except MidtokenError:
            raise
        except Exception as error:  # the code of some hundred families raises undocumented exceptions
            if plan.calls:
                raise
            raise ModelError(f"{OWN_ATTENTION}, or it needs more than tokens and positions") from error
        if logits.shape[0] == 2:  # the model takes the argument and ignores it
            self._selects_rows = False
        return tuple(probe.layers), logits.shape[1]

    def new_cache(self, num_tokens: int = 256) -> SequenceCache:
        """An empty cache with room for `num_tokens`. Raises OverloadedError."""
        return SequenceCache(self.layers, self.dtype, self.device, num_tokens)

    def new_row_store(self) -> RowStore:
        """An empty store for token strings that share their beginnings. Raises OverloadedError."""
        return RowStore(self.layers, self.dtype, self.device)

    @torch.inference_mode()
    def forward(self, parts: Sequence[Part]) -> torch.Tensor:
        """Next-token logits after each new node of the parts that want them, part by part.

        A part gives `num_logit_rows`. Afterwards call `cache.keep` once for each part. Returns [num_nodes, vocab_size]
        float32, device. Raises OverloadedError; the kept tokens of the caches are then unchanged.
        """
        ids: list[int] = []
        wanted_rows: list[int] = []
        segments: list[Segment] = []
        for part in parts:
            assert isinstance(part.cache, SequenceCache), "every cache comes from new_cache"
            part.cache.reserve(part.tree.num_rows)
            segments.append(part.cache.build_segment(part.tree, len(ids), part.stored))
            ids += [*part.tree.chain_ids, *part.tree.branch_ids[len(part.stored) :]]
            wanted_rows += range(len(ids) - part.num_logit_rows, len(ids))
        return self.forward_plan(ids, Plan(segments), wanted_rows)

    def forward_segment(self, token_ids: Sequence[int], segment: Segment, wanted_rows: Sequence[int]) -> torch.Tensor:
        """Next-token logits after some of the segment's rows, as `forward_plan`."""
        return self.forward_plan(token_ids, Plan([segment]), wanted_rows)

    @torch.inference_mode()
    def forward_plan(self, token_ids: Sequence[int], plan: Plan, wanted_rows: Sequence[int]) -> torch.Tensor:
        """Next-token logits after some rows of the plan's segments, whose tokens are `token_ids`.

        Returns [num_wanted, vocab_size] float32, device. Raises OverloadedError, or ModelError if they are no numbers.
        """
        wanted = torch.tensor(wanted_rows, dtype=torch.long, device=self.device)
        options = {"logits_to_keep": wanted} if self._selects_rows else {}
        with refusing_when_out_of_memory(f"a forward pass over {len(token_ids)} tokens"), self._plans.use(plan):
            output = self._model(
                input_ids=torch.tensor([token_ids], device=self.device),
                position_ids=torch.cat([segment.depths for segment in plan.segments])[None],
                use_cache=False,
                **options,
            )
        logits: torch.Tensor = output.logits[0] if self._selects_rows else output.logits[0, wanted]
        return _check_numbers(logits.float(), self.dtype)


def _check_numbers(logits: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The same logits. Raises ModelError if some are infinite or no numbers: a choice among them would be arbitrary."""
    if not logits.sum(dim=-1).isfinite().all():  # much faster than to ask each of them
        name = str(dtype).removeprefix("torch.")
        raise ModelError(
            f"in {name}, the model's logits are infinite or no numbers: its weights are damaged or too large for this "
            "type"
        )
    return logits


def _read_max_tokens(model: Any) -> int:  # a transformers model, which has no types
    """The most tokens of one sequence that the configuration names."""
    named = getattr(model.config.get_text_config(decoder=True), "max_position_embeddings", None)
    return named if isinstance(named, int) and named > 0 else _MAX_TOKENS
