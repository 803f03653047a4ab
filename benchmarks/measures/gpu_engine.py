"""What `benchmarks.engine_gpu` measures: engines with random weights in this process, and their completions.

Models of real shapes are made on their device without a download. A pass takes the same time whatever the weights are.
The text that such a model writes means nothing, but must go on for as long as a measurement needs. So the weights are
drawn such that the hidden state of a token comes from the layers and not from its embedding: greedy text then moves
through the vocabulary, and does not repeat one token.

The tokenizer is that of a folder. Rows of the head without a token are never chosen, but forwarded, masked and compared
as all others. `make build/large-tokenizer/tokenizer.json` makes the tokens that the real models have.
"""

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path

import torch
import transformers

from benchmarks.corpora.grown_model import Shape
from inference.config import EngineConfig
from inference.engine.assembly import build_engine
from inference.engine.engine import Engine
from inference.healing.heal_point import encode_text
from inference.model.language_model import LoadedModel
from inference.model.pytorch.loader import build_torch_model, build_torch_runner
from inference.model.pytorch.runner import TorchModel
from inference.model.pytorch.transformers_hook import ATTENTION_NAME, register_attention
from inference.protocol.completion import Chunks, CompletionRequest, Extent
from models.training.corpus import iter_held_out

DEFAULT_MODEL = Path("models/default")

# A name that nobody has chosen, so that no completion guesses its next letter.
_TYPED = "value = zqxj_wvkf_pyrg_hmbd_ctnl_uosx_ieav_qzjw_gkxy_rvpo"
_FIRST_KEY = len("value = z")

_CHARS_PER_TOKEN = 6  # more than texts have
_SHIFT = 4_999  # characters between the beginnings of two texts

_EMBEDDING_SPREAD = 0.02  # small beside what the layers add
_SEED = 0

# From the config.json of Qwen2.5-Coder. The tokenizer has 151,643 tokens and 22 special ones; the rest is padding.
SHAPES = {
    "1_5b": Shape(1536, 28, 12, 2, 128, 8960, 151_936),
    "7b": Shape(3584, 28, 28, 4, 128, 18_944, 152_064, tie_word_embeddings=False),
}


@dataclass(frozen=True, slots=True)
class Setting:
    """The device, and what is measured on it."""

    device: str
    tokenizer: Path  # a folder with a tokenizer.json
    shapes: Mapping[str, Shape] = field(default_factory=lambda: SHAPES, hash=False)
    num_context: int = 2048  # tokens before the cursor
    num_tokens: int = 20  # of a completion
    num_keys: int = 40
    num_sequences: int = 64  # completed at once
    num_batch_tokens: int = 64  # of each of these completions
    num_repeats: int = 30
    num_right_cuts: int = 50
    num_copy_bytes: int = 4 * 2**30
    vocab_rows: int = 151_936  # of the rows from which the sampler chooses

    def synchronize(self) -> None:
        """Returns when the device has done all that it was given."""
        if self.device == "cuda":
            torch.cuda.synchronize()


# The rows are more than the default model's tokenizer has tokens, as in the real shapes.
TINY = Setting(
    "cpu",
    DEFAULT_MODEL,
    {
        "1_5b": Shape(64, 3, 4, 2, 32, 128, 8_448),
        "7b": Shape(96, 3, 6, 2, 32, 160, 8_448, tie_word_embeddings=False),
    },
    num_context=96,
    num_tokens=6,
    num_keys=6,
    num_sequences=4,
    num_batch_tokens=6,
    num_repeats=3,
    num_right_cuts=8,
    num_copy_bytes=2**22,
    vocab_rows=8_448,
)


@cache
def _read_held_out() -> str:
    return "".join(file.text for file in iter_held_out())


@dataclass(frozen=True, slots=True)
class RandomEngine:
    """A model with random weights, and an engine for it."""

    setting: Setting
    name: str  # of the shape
    loaded: LoadedModel[TorchModel]
    engine: Engine

    @property
    def shape(self) -> Shape:
        """The shape of its model."""
        return self.setting.shapes[self.name]

    def cut_text(self, num_tokens: int, index: int = 0) -> str:
        """Source text, of about so many tokens, in whole lines; another one for each `index`."""
        tokenizer, whole = self.loaded.tokenizer, _read_held_out()
        num_chars, start = _CHARS_PER_TOKEN * num_tokens, index * _SHIFT % len(whole)
        text = (whole * (2 + num_chars // len(whole)))[start : start + num_chars]
        ids = encode_text(tokenizer.encoder, text)[:num_tokens]
        cut = b"".join(tokenizer.vocabulary.token_bytes[token_id] for token_id in ids).decode(errors="ignore")
        return cut.rpartition("\n")[0] + "\n"


@contextmanager
def random_engine(setting: Setting, name: str) -> Iterator[RandomEngine]:
    """A model of this shape and an engine without drafts, which ends with the context. Raises ModelError."""
    with ExitStack() as owner:
        config = EngineConfig(
            prepare_tokenizer(setting.tokenizer, owner),
            device=setting.device,
            dtype="bfloat16",
            drafts=False,
            fill_in_layout="none",
            max_sequences=setting.num_sequences,
            max_context_tokens=2 * setting.num_context,
            cache_tokens=2 * setting.num_sequences * (setting.num_context + 256),
            memory_mib=48 * 1024,  # all that was read stays
            max_waiting=2 * setting.num_sequences,
        )
        loaded = _load_random_model(setting.shapes[name], config)
        yield RandomEngine(setting, name, loaded, owner.enter_context(closing(build_engine(config, loaded))))


class Document:
    """A document in which somebody types at the end. Its last line has no indentation, so no extent ends a block."""

    def __init__(self, engine: RandomEngine, index: int = 0) -> None:
        self._text = engine.cut_text(engine.setting.num_context, index)
        self._uri = f"file:///document_{index}.py"
        self._num_typed = _FIRST_KEY

    def type_key(self, max_tokens: int) -> CompletionRequest:
        """The request after the next key, as the language server sends it."""
        text = self._text + _TYPED[: self._num_typed]
        self._num_typed += 1
        if self._num_typed > len(_TYPED):
            self._num_typed = _FIRST_KEY
            self._text += _TYPED + "\n"
        return CompletionRequest(
            text, max_tokens=max_tokens, extent=Extent.BLOCK, chunks=Chunks.LINES, document=self._uri
        )


def _load_random_model(shape: Shape, config: EngineConfig) -> LoadedModel[TorchModel]:
    """A model of this shape on `config.device`, with the same weights for the same device and type.

    It is checked as one from a folder, and has the tokenizer of `model_dir`. Raises ModelError.
    """
    register_attention()
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
        model = transformers.AutoModelForCausalLM.from_config(
            sizes, dtype=getattr(torch, config.dtype), attn_implementation=ATTENTION_NAME
        )
    _draw_weights(model, torch.Generator(device).manual_seed(_SEED))
    return build_torch_model(config, build_torch_runner(model.eval(), device))


@torch.no_grad()
def _draw_weights(model: torch.nn.Module, generator: torch.Generator) -> None:
    for name, weight in model.named_parameters():
        if weight.dim() == 1:
            weight.fill_(1.0 if name.endswith("norm.weight") else 0.0)
        else:
            is_table = "embed_tokens" in name or "lm_head" in name
            spread = _EMBEDDING_SPREAD if is_table else weight.shape[1] ** -0.5
            weight.normal_(0.0, spread, generator=generator)


def prepare_tokenizer(folder: Path, owner: ExitStack) -> Path:
    """A folder with the same `tokenizer.json`, which names a token that ends a text. `owner` removes it."""
    content = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    special_ids = [added["id"] for added in content.get("added_tokens", ())]
    end_id = min(special_ids, default=len(content["model"]["vocab"]))
    prepared = Path(owner.enter_context(tempfile.TemporaryDirectory(prefix="midtoken-tokenizer-")))
    (prepared / "tokenizer.json").symlink_to((folder / "tokenizer.json").resolve())
    (prepared / "config.json").write_text(json.dumps({"eos_token_id": end_id}))
    return prepared
