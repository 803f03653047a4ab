"""The model on its device: token trees in, next-token logits out.

Several sequences go through in one pass, their new tokens packed in one row; each sees its own
sequence only (see `kv_cache.attend`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import transformers

from inference.config import EngineConfig
from inference.errors import ModelError
from inference.healing.token_tree import TokenTree
from inference.model.kv_cache import (
    ATTENTION_NAME,
    CacheShape,
    RowStore,
    Segment,
    SequenceCache,
    build_segment,
    register_attention,
)
from inference.model.memory import refusing_when_full


@dataclass(frozen=True, slots=True)
class Part:
    """One sequence's part in a forward pass."""

    cache: SequenceCache
    tree: TokenTree
    wants_logits: bool = True  # False while a long prompt is still being read


class Runner:
    """A causal language model that forwards token trees."""

    def __init__(self, model: torch.nn.Module, device: torch.device) -> None:
        """`model` was loaded with `attn_implementation=ATTENTION_NAME`; `load_runner` does that."""
        self._model = model.eval()
        self.device = device
        config = model.config.get_text_config()  # type: ignore[operator,union-attr]  # transformers is untyped
        num_heads = config.num_attention_heads
        self._shape = CacheShape(
            num_layers=config.num_hidden_layers,
            num_kv_heads=getattr(config, "num_key_value_heads", None) or num_heads,
            head_dim=getattr(config, "head_dim", None) or config.hidden_size // num_heads,
        )
        self._dtype = next(model.parameters()).dtype
        self.vocab_size: int = model.get_output_embeddings().weight.shape[0]  # type: ignore[operator]
        self.max_tokens: int = getattr(config, "max_position_embeddings", 2048)

    def new_cache(self) -> SequenceCache:
        """An empty cache for one sequence."""
        return SequenceCache(self._shape, self._dtype, self.device)

    def new_row_store(self) -> RowStore:
        """An empty store for strings that share their beginnings."""
        return RowStore(self._shape, self._dtype, self.device)

    @torch.inference_mode()
    def forward(self, parts: Sequence[Part]) -> torch.Tensor:
        """Next-token logits after each node of the parts that want them, step by part.

        Of a part come 1 + num_branches rows: the chain's end, then the branches. Afterwards call `cache.keep` once
        for each part. Raises OverloadedError; no cache has changed then. Returns [num_nodes, vocab_size] float32,
        device.
        """
        ids: list[int] = []
        wanted_rows: list[int] = []
        plan: list[Segment] = []
        for part in parts:
            part.cache.reserve(part.tree.num_rows)
            plan.append(build_segment(part.cache, part.tree, len(ids), self.device))
            ids += [*part.tree.chain_ids, *part.tree.branch_ids]
            if part.wants_logits:
                wanted_rows += range(len(ids) - len(part.tree.branch_ids) - 1, len(ids))
        return self._forward(ids, plan, wanted_rows)

    @torch.inference_mode()
    def forward_segment(self, token_ids: Sequence[int], segment: Segment, wanted_rows: Sequence[int]) -> torch.Tensor:
        """Next-token logits after the wanted of the segment's rows, whose tokens are `token_ids`.

        Returns [num_wanted, vocab_size] float32, device.
        """
        return self._forward(token_ids, [segment], wanted_rows)

    def _forward(self, token_ids: Sequence[int], plan: list[Segment], wanted_rows: Sequence[int]) -> torch.Tensor:
        with refusing_when_full(f"a forward pass over {len(token_ids)} tokens"):
            output = self._model(
                input_ids=torch.tensor([token_ids], device=self.device),
                position_ids=torch.cat([segment.depths for segment in plan])[None],
                use_cache=False,
                logits_to_keep=torch.tensor(wanted_rows, dtype=torch.long, device=self.device),
                plan=plan,
            )
            logits: torch.Tensor = output.logits[0].float()
        return logits


def load_runner(config: EngineConfig) -> Runner:
    """The model of `config.model_dir`, ready on its device. Raises ModelError where that cannot be."""
    if not (config.model_dir / "config.json").is_file():
        raise ModelError(f"{config.model_dir} is not a model folder: it has no config.json")
    register_attention()
    torch.set_num_threads(config.num_threads)
    try:
        device = torch.device(config.device)
        model = transformers.AutoModelForCausalLM.from_pretrained(
            config.model_dir,
            dtype=getattr(torch, config.dtype),
            attn_implementation=ATTENTION_NAME,
            local_files_only=True,
        ).to(device)
    except (OSError, ValueError, RuntimeError, AttributeError, KeyError) as error:
        raise ModelError(f"cannot load the model in {config.model_dir}: {error}") from error
    return Runner(model, device)
