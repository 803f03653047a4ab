"""Forward passes of a model on its device: token trees in, next-token logits out."""

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from inference.errors import MidtokenError, ModelError
from inference.model.language_model import SampleRequest, SampleResult, SequenceInput
from inference.model.pytorch.attention import SegmentAttention
from inference.model.pytorch.device import refusing_when_out_of_memory
from inference.model.pytorch.kv_cache import Segment, TorchSequenceCache, build_lone_segment
from inference.model.pytorch.sampler import Sampler
from inference.model.pytorch.transformers_hook import OWN_ATTENTION, AttentionCall, attach_running_pass

_MAX_TOKENS = 2048  # if the configuration names no limit


class Runner:
    """A causal language model that forwards the token trees of several sequences in one pass."""

    def __init__(self, model: torch.nn.Module, device: torch.device) -> None:
        """Forwards two tokens, to find the shape of each layer's keys and values.

        `model`: loaded with `attn_implementation=ATTENTION_NAME`, as by `load_runner`. Raises ModelError.
        """
        self._model = model.eval()
        self.num_weights = sum(each.numel() for each in model.parameters())
        self._running = attach_running_pass(model)
        self.device = device
        self.dtype = next(model.parameters()).dtype
        self.max_tokens = _read_max_tokens(model)
        self._takes_rows = "logits_to_keep" in inspect.signature(model.forward).parameters
        self.vocab_size = self._measure()
        dims = [(call.shape.num_kv_heads, dim) for call in self.last_calls for dim in call.shape.dims]
        self._no_planes = [torch.empty((heads, 0, dim), dtype=self.dtype, device=device) for heads, dim in dims]

    def _measure(self) -> int:
        """Forwards two tokens. Returns the number of logits of a row."""
        try:
            logits = self.forward_segments((0, 0), [build_lone_segment(range(2))], (1,))
        except MidtokenError:
            raise
        except Exception as error:  # the code of some hundred families raises undocumented exceptions
            if self.last_calls:
                raise
            raise ModelError(f"{OWN_ATTENTION}, or it needs more than tokens and positions") from error
        return logits.shape[1]

    @property
    def last_calls(self) -> Sequence[AttentionCall]:
        """The calls of the attention function in the last pass."""
        return self._running.calls

    def new_cache(self, num_tokens: int = 256) -> TorchSequenceCache:
        """An empty cache with room for `num_tokens`. Raises OverloadedError."""
        return TorchSequenceCache(self._no_planes, 0, num_tokens)

    def forward(self, parts: Sequence[SequenceInput]) -> torch.Tensor:
        """Next-token logits after each new node of the parts that want them, part by part.

        A part gives `num_logit_rows`. Afterwards call `cache.keep` once for each part. Returns [num_nodes, vocab_size]
        of the model's type, device; float32 for float64. Raises OverloadedError; the kept tokens of the caches are then
        unchanged.
        """
        ids: list[int] = []
        wanted_rows: list[int] = []
        segments: list[Segment] = []
        for part in parts:
            assert isinstance(part.cache, TorchSequenceCache), "every cache comes from new_cache"
            part.cache.reserve(part.tree.num_rows)
            segments.append(part.cache.build_segment(part.tree, part.stored))
            ids += [*part.tree.chain_ids, *part.tree.branch_ids[len(part.stored) :]]
            wanted_rows += range(len(ids) - part.num_logit_rows, len(ids))
        return self.forward_segments(ids, segments, wanted_rows)

    @torch.inference_mode()
    def forward_segments(
        self, token_ids: Sequence[int], segments: Sequence[Segment], wanted_rows: Sequence[int]
    ) -> torch.Tensor:
        """Next-token logits after some rows of the segments, whose tokens are `token_ids`, segment by segment.

        Returns [num_wanted, vocab_size] of the model's type, device; float32 for float64. Raises OverloadedError, and
        ModelError if they are no numbers.
        """
        positions = np.concatenate([segment.row_positions for segment in segments])
        numbers = [np.array(token_ids), positions, np.array(wanted_rows, dtype=np.int64)]
        ids, places, wanted = (torch.from_numpy(each).to(self.device) for each in numbers)
        options = {"logits_to_keep": wanted} if self._takes_rows else {}
        with (
            refusing_when_out_of_memory(f"a forward pass over {len(token_ids)} tokens"),
            self._running.use(SegmentAttention(segments, self.device).attend),
        ):
            output = self._model(input_ids=ids[None], position_ids=places[None], use_cache=False, **options)
        logits: torch.Tensor = output.logits[0]
        if len(logits) != len(wanted_rows):  # there is no such argument, or the model ignores it
            logits = logits[wanted]
        logits = logits.float() if self.dtype == torch.float64 else logits
        return _check_numbers(logits, self.dtype)


def _check_numbers(logits: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The same logits. Raises ModelError if some are infinite or NaN: a choice among them would be arbitrary."""
    if not logits.sum(dim=-1, dtype=torch.float32).isfinite().all():  # much faster than to ask each of them
        name = str(dtype).removeprefix("torch.")
        raise ModelError(
            f"in {name}, the model's logits are infinite or NaN: its weights are damaged or too large for this dtype"
        )
    return logits


def _read_max_tokens(model: Any) -> int:  # a transformers model, which has no types
    """The most tokens of one sequence that the configuration names.

    With the longrope scaling, a position beyond the original length changes the frequencies of all sequences in the
    pass, so sequences must stay below it. The dynamic scaling changes them only beyond the named length. Gemma 3 and
    others have the scaling of each type of layer in its own object.
    """
    config = model.config.get_text_config(decoder=True)
    named, scaling = getattr(config, "max_position_embeddings", None), getattr(config, "rope_parameters", None) or {}
    limits = [named] if isinstance(named, int) and named > 0 else [_MAX_TOKENS]
    for each in (scaling, *(part for part in scaling.values() if isinstance(part, dict))):
        if each.get("rope_type") == "longrope":
            limits.append(each["original_max_position_embeddings"])
    return min(limits)


class TorchModel:
    """A `LanguageModel` on one torch device."""

    runs_together = True
    row_cost = 0.1

    def __init__(self, runner: Runner, sampler: Sampler) -> None:
        self.max_tokens = runner.max_tokens
        self.runner = runner
        self._sampler = sampler

    def new_cache(self, num_tokens: int = 256) -> TorchSequenceCache:
        """An empty cache with room for `num_tokens`. Raises OverloadedError."""
        return self.runner.new_cache(num_tokens)

    def forward(self, parts: Sequence[SequenceInput]) -> list[list[Any]]:
        """Forwards all parts. Returns the rows of each part that wants them.

        Raises OverloadedError or ModelError; the kept tokens of the caches are then unchanged.
        """
        with refusing_when_out_of_memory(f"a step of {len(parts)} sequences"):
            rows = iter(self._sampler.build_rows(self.runner.forward(parts)))
        return [[next(rows) for _ in range(part.num_logit_rows)] for part in parts]

    def copy_logits(self, rows: Sequence[Any]) -> npt.NDArray[np.float32]:
        """See `LanguageModel`."""
        return self._sampler.copy_logits(rows)

    def choose(self, requests: Sequence[SampleRequest]) -> list[SampleResult]:
        """See `LanguageModel`."""
        with refusing_when_out_of_memory(f"the choices of {len(requests)} requests"):
            return self._sampler.choose(requests)
