"""How fast and right the engine is on one GPU, beside transformers' own `generate`: random weights, no server.

    python -m benchmarks.engine_gpu [--output FOLDER] [--only PART ...] [--short]

It needs a GPU, torch and transformers, and no network. It is not part of `make bench`, which measures what everybody
has: two cores and the bundled model.

- `right_…`: the bundled model chooses the tokens that it chooses on the CPU in float32.
- `first_ms_…`: a key in a document that was read before, until its first token is there. For `generate`, the same
  tokens in a cache that has all but the last one.
- `tokens_per_s_…`: of a completion of 64 tokens there.

A pass takes the same time whatever the weights are, so models of real shapes are made on their device, in bfloat16. The
weights are drawn such that the hidden state of a token comes from the layers and not from its embedding: greedy text
then moves through the vocabulary, and does not repeat one token. The tokenizer is the one of the real models, if
`make build/large-tokenizer/tokenizer.json` has built it. `--short` runs the parts on the CPU with tiny shapes.
"""

import json
import math
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers

from benchmarks.corpora.cuts import draw_cuts
from benchmarks.corpora.grown_model import Shape
from benchmarks.measures.report import Figures, Part, Target, Value, find_percentile, run_parts
from benchmarks.measures.right_choices import compare_engines
from inference.config import EngineConfig
from inference.engine.local_executor import build_engine
from inference.healing.heal_point import encode_text
from inference.model.pytorch.loader import build_torch_model
from inference.protocol.completion import Chunks, CompletionRequest, Extent
from models.training.corpus import iter_held_out
from tests.support.sinks import complete

_BUNDLED_MODEL, _LARGE_TOKENIZER = Path("models/default"), Path("build/large-tokenizer")
_TOLERANCES = {"float32": 0.01, "bfloat16": 0.15}  # nats between the two best

TARGETS = (
    Target("right_wrong_float32", "other choices than on the CPU in float32, float32", at_most=0),
    Target("right_wrong_bfloat16", "other choices than on the CPU in float32, bfloat16", at_most=0),
    Target("speed_ratio_1_5b", "tokens a second, relative to generate's, 1.5B", at_least=0.9),
    Target("speed_ratio_7b", "tokens a second, relative to generate's, 7B", at_least=0.9),
)

# A name that nobody has chosen, so that no completion guesses its next letter.
_TYPED = "value = zqxj_wvkf_pyrg_hmbd_ctnl_uosx_ieav_qzjw_gkxy_rvpo"
_FIRST_KEY, _NUM_WARM_UP = len("value = z"), 3
_EMBEDDING_SPREAD = 0.02  # small beside what the layers add


@dataclass(frozen=True, slots=True)
class _Setting:
    """The device, and what is measured on it."""

    device: str
    tokenizer: Path  # a folder with a tokenizer.json
    shapes: dict[str, Shape]
    num_context: int  # tokens before the cursor
    num_tokens: int  # of a completion
    num_keys: int
    num_right_cuts: int


# From the config.json of Qwen2.5-Coder. The tokenizer has 151,643 tokens and 22 special ones; the rest is padding.
SHAPES = {
    "1_5b": Shape(1536, 28, 12, 2, 128, 8960, 151_936),
    "7b": Shape(3584, 28, 28, 4, 128, 18_944, 152_064, tie_word_embeddings=False),
}
_TINY = {
    "1_5b": Shape(64, 3, 4, 2, 32, 128, 8_448),  # more rows than the tokenizer has tokens, as in the real shapes
    "7b": Shape(96, 3, 6, 2, 32, 160, 8_448, tie_word_embeddings=False),
}


def main() -> None:
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}"
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "the CPU"
    run_parts("engine_gpu", PARTS, TARGETS, f"{device}; {versions}")


def _find_setting(is_short: bool) -> _Setting:
    if is_short:
        return _Setting("cpu", _BUNDLED_MODEL, _TINY, 96, 6, 3, 4)
    if not torch.cuda.is_available():
        raise SystemExit("benchmarks.engine_gpu needs a GPU, and torch finds none here; --short needs none")
    has_large = (_LARGE_TOKENIZER / "tokenizer.json").exists()
    return _Setting("cuda", _LARGE_TOKENIZER if has_large else _BUNDLED_MODEL, SHAPES, 2048, 64, 40, 50)


def _measure_right(is_short: bool) -> Figures:
    """`right_…` for each type of numbers."""
    setting = _find_setting(is_short)
    reference = EngineConfig(_BUNDLED_MODEL, dtype="float32")
    cuts = draw_cuts(iter_held_out(), setting.num_right_cuts // 2, setting.num_right_cuts // 2, seed=5)
    figures: dict[str, Value] = {"right_cuts": len(cuts)}
    for dtype, gap in _TOLERANCES.items():
        found = compare_engines(EngineConfig(_BUNDLED_MODEL, setting.device, dtype), reference, cuts, gap)
        figures |= {f"right_wrong_{dtype}": len(found.wrong), f"right_close_{dtype}": found.num_tied}
        figures[f"right_largest_gap_{dtype}"] = found.greatest_gap
    return figures


def _measure_shape(name: str, is_short: bool) -> Figures:
    """The other figures, of one shape."""
    setting = _find_setting(is_short)
    with ExitStack() as owner:
        config = EngineConfig(
            _prepare_tokenizer(setting.tokenizer, owner),
            device=setting.device,
            dtype="bfloat16",
            fill_in_layout="none",
            max_context_tokens=2 * setting.num_context,
            cache_tokens=8 * setting.num_context,
        )
        model, device = _build_random_model(setting.shapes[name], config)
        loaded = build_torch_model(config, model, device)
        ids = encode_text(loaded.tokenizer.encoder, "".join(file.text for file in iter_held_out())[:40_000])
        spelled = b"".join(loaded.tokenizer.vocabulary.token_bytes[each] for each in ids[: setting.num_context])
        text = spelled.decode(errors="ignore").rpartition("\n")[0] + "\n"
        loaded.model.token_cost = math.inf  # without drafts
        engine = owner.enter_context(closing(build_engine(config, loaded)))
        keys = iter(range(_FIRST_KEY, len(_TYPED)))

        def type_key(num_tokens: int) -> float:
            typed = text + _TYPED[: next(keys)]
            request = CompletionRequest(
                typed, max_tokens=num_tokens, extent=Extent.BLOCK, chunks=Chunks.LINES, document="file:///a.py"
            )
            return complete(engine, request).stats.total_ms

        generate = partial(_generate, model, list(ids[: setting.num_context]), transformers.DynamicCache())
        figures: dict[str, Value] = {"has_large_tokenizer": setting.tokenizer == _LARGE_TOKENIZER}
        for kind, act in (("", type_key), ("generate_", generate)):
            first = _find_median(setting.num_keys // 2, act, 1)
            whole = _find_median(setting.num_keys // 2, act, setting.num_tokens)
            figures[f"first_ms_{kind}{name}"] = first
            figures[f"tokens_per_s_{kind}{name}"] = 1e3 * (setting.num_tokens - 1) / max(whole - first, 1e-9)
        ours, theirs = (figures[f"tokens_per_s_{kind}{name}"] for kind in ("", "generate_"))
        assert isinstance(ours, float)
        assert isinstance(theirs, float)
        return figures | {f"speed_ratio_{name}": ours / theirs}


def _find_median(num_times: int, act: Callable[[int], float], num_tokens: int) -> float:
    """The median of the milliseconds that it returns, without the first ones, which are slow."""
    return find_percentile([act(num_tokens) for _ in range(_NUM_WARM_UP + num_times)][_NUM_WARM_UP:], 50) or 0.0


@torch.inference_mode()
def _generate(model: Any, ids: list[int], kept: Any, num_tokens: int) -> float:  # transformers has no types
    """Milliseconds of `generate`. `kept` is the cache, which has all tokens but the last one from the first call on."""
    tokens = torch.tensor([ids], device=model.device)
    kept.crop(-max(kept.get_seq_length() - len(ids) + 1, 0))
    if not kept.get_seq_length():
        model(input_ids=tokens[:, :-1], past_key_values=kept, use_cache=True, logits_to_keep=1)
    torch.cuda.synchronize() if torch.cuda.is_available() else None
    began_at = time.perf_counter()
    model.generate(
        tokens,
        attention_mask=torch.ones_like(tokens),
        past_key_values=kept,
        do_sample=False,
        min_new_tokens=num_tokens,
        max_new_tokens=num_tokens,
        pad_token_id=0,
    ).tolist()
    return 1e3 * (time.perf_counter() - began_at)


def _build_random_model(shape: Shape, config: EngineConfig) -> tuple[Any, torch.device]:  # transformers has no types
    """A model of this shape on `config.device`, with the same weights for the same device and type."""
    torch.set_num_threads(config.num_threads or 1)
    device = torch.empty(0, device=config.device).device  # with its number
    sizes = transformers.Qwen2Config(
        **asdict(shape),
        max_position_embeddings=32_768,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6},
        rms_norm_eps=1e-6,
        bos_token_id=None,
        eos_token_id=None,
    )
    with device:
        model = transformers.AutoModelForCausalLM.from_config(sizes, dtype=getattr(torch, config.dtype))
    generator = torch.Generator(device).manual_seed(0)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() == 1:
                weight.fill_(1.0 if name.endswith("norm.weight") else 0.0)
            else:
                is_table = "embed_tokens" in name or "lm_head" in name
                spread = _EMBEDDING_SPREAD if is_table else weight.shape[1] ** -0.5
                weight.normal_(0.0, spread, generator=generator)
    return model.eval(), device


def _prepare_tokenizer(folder: Path, owner: ExitStack) -> Path:
    """A folder with the same `tokenizer.json`, which names a token that ends a text. `owner` removes it."""
    content = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    special_ids = [added["id"] for added in content.get("added_tokens", ())]
    end_id = min(special_ids, default=len(content["model"]["vocab"]))
    prepared = Path(owner.enter_context(tempfile.TemporaryDirectory(prefix="midtoken-tokenizer-")))
    (prepared / "tokenizer.json").symlink_to((folder / "tokenizer.json").resolve())
    (prepared / "config.json").write_text(json.dumps({"eos_token_id": end_id}))
    return prepared


# What is right is measured first.
PARTS: dict[str, Part] = {"right": _measure_right, **{shape: partial(_measure_shape, shape) for shape in SHAPES}}


if __name__ == "__main__":
    main()
