"""Models of real shapes with random weights, made on their device without a download.

A pass takes the same time whatever the weights are. The text that such a model writes means nothing, but must go on for
as long as a measurement needs. So the weights are drawn such that the hidden state of a token comes from the layers and
not from its embedding: greedy text then moves through the vocabulary, and does not repeat one token.

The tokenizer is that of a folder. Rows of the head without a token are never chosen, but forwarded, masked and compared
as all others. `make build/large-tokenizer/tokenizer.json` makes the tokens that the real models have.
"""

import json
import tempfile
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import transformers

from benchmarks.corpora.grown_model import Shape
from inference.config import EngineConfig
from inference.model.language_model import LoadedModel
from inference.model.pytorch.loader import build_torch_model, build_torch_runner
from inference.model.pytorch.runner import TorchModel
from inference.model.pytorch.transformers_hook import ATTENTION_NAME, register_attention

_EMBEDDING_SPREAD = 0.02  # small beside what the layers add
_SEED = 0


# From the config.json of Qwen2.5-Coder. The tokenizer has 151,643 tokens and 22 special ones; the rest is padding.
SHAPES = {
    "1_5b": Shape(1536, 28, 12, 2, 128, 8960, 151_936),
    "7b": Shape(3584, 28, 28, 4, 128, 18_944, 152_064, tie_word_embeddings=False),
}


def build_random_model(
    shape: Shape, device: torch.device, dtype: torch.dtype, attention: str
) -> Any:  # a transformers model, which has no types
    """A model of this shape on its device, with the same weights for the same device and type."""
    config = transformers.Qwen2Config(
        **asdict(shape),
        max_position_embeddings=32_768,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6},
        rms_norm_eps=1e-6,
        bos_token_id=None,
        eos_token_id=None,
    )
    with device:
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=attention)
    generator = torch.Generator(device).manual_seed(_SEED)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() == 1:
                weight.fill_(1.0 if name.endswith("norm.weight") else 0.0)
            else:
                is_table = "embed_tokens" in name or "lm_head" in name
                spread = _EMBEDDING_SPREAD if is_table else weight.shape[1] ** -0.5
                weight.normal_(0.0, spread, generator=generator)
    return model.eval()


def load_random_model(shape: Shape, config: EngineConfig) -> LoadedModel[TorchModel]:
    """A model of this shape on `config.device`, checked as one from a folder, with the tokenizer of `model_dir`.

    Raises ModelError.
    """
    register_attention()
    torch.set_num_threads(config.num_threads or 1)
    device = torch.empty(0, device=config.device).device  # with its number
    model = build_random_model(shape, device, getattr(torch, config.dtype), ATTENTION_NAME)
    return build_torch_model(config, build_torch_runner(model, device))


def prepare_tokenizer(folder: Path, owner: ExitStack) -> Path:
    """A folder with the same `tokenizer.json`, which names a token that ends a text. `owner` removes it."""
    content = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    special_ids = [added["id"] for added in content.get("added_tokens", ())]
    end_id = min(special_ids, default=len(content["model"]["vocab"]))
    prepared = Path(owner.enter_context(tempfile.TemporaryDirectory(prefix="midtoken-tokenizer-")))
    (prepared / "tokenizer.json").symlink_to((folder / "tokenizer.json").resolve())
    (prepared / "config.json").write_text(json.dumps({"eos_token_id": end_id}))
    return prepared
