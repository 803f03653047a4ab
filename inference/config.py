"""The configuration of an engine. The entry points read it once and pass it on."""

import dataclasses
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from inference.errors import ModelError, check_ranges, quote

_VARIABLE_PREFIX = "MIDTOKEN_"
AUTO_LAYOUT = "auto"
AUTO_DTYPE = "auto"
_DTYPES = (AUTO_DTYPE, "float32", "int8", "int4", "bfloat16", "float16", "float64")
AUTO_DEVICE = "auto"
DEFAULT_CONTEXT_TOKENS = 1024
MAX_CONTEXT_TOKENS = 1_048_576
MIN_PROMPT_TOKENS = 16  # fewer leave hardly any text before the cursor

# The minimum and maximum of each number.
_RANGES = {
    "num_threads": (1, 1024),
    "max_sequences": (1, 1024),
    "max_waiting": (0, 65_536),
    "max_context_tokens": (MIN_PROMPT_TOKENS, MAX_CONTEXT_TOKENS),
    "memory_mib": (0, 1_048_576),
    "cache_tokens": (2 * MIN_PROMPT_TOKENS, 1_073_741_824),
}


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """How to load and run one model."""

    model_dir: Path  # config.json, tokenizer.json, and *.safetensors or model.gguf
    device: str = AUTO_DEVICE  # cpu, or a device of torch or llama.cpp; auto: a GPU if llama.cpp has one, else the CPU
    dtype: str = AUTO_DTYPE  # float32, int8 or int4 (bits of a weight, on the CPU), a torch dtype; auto: what suits it
    num_threads: int | None = None  # on the CPU; None: see `inference.model.sizes`
    max_sequences: int = 16  # running sequences, one for each candidate
    max_waiting: int = 64  # queued requests; further ones are refused
    max_context_tokens: int | None = None  # of a prompt; None: see `inference.model.sizes`
    cache_tokens: int = 65_536  # capacity for keys and values, in tokens of all sequences together
    memory_mib: int = 256  # for what is remembered between requests: sequences, states; 0: nothing is
    drafts: bool = True  # guess tokens from earlier text, where that pays; completions are the same without
    fill_in_layout: str = AUTO_LAYOUT  # a member of inference.engine.layout.Layout; auto: what the model names
    graph_dir: Path | None = None  # where models that were converted for onnxruntime are kept; None: nowhere
    engine_url: str = ""  # of `find_engine_urls`: servers that have the weights; empty: the model runs here
    engine_key: str = field(default="", repr=False)  # for it; a secret

    def __post_init__(self) -> None:
        """Raises ModelError, naming the field, if a number is out of range or no such dtype exists."""
        check_ranges(self, _RANGES, ModelError)
        if self.dtype not in _DTYPES:
            raise ModelError(f"dtype must be one of {', '.join(_DTYPES)}, not {quote(self.dtype)}")


def config_from_environment(environment: Mapping[str, str]) -> EngineConfig:
    """The config that the environment sets: MIDTOKEN_MODEL_DIR for model_dir, and so on. An empty value is the default.

    Raises ModelError, naming the field, if a value is invalid or there is no model_dir.
    """
    values: dict[str, Any] = {}
    for each in dataclasses.fields(EngineConfig):
        if text := environment.get(_VARIABLE_PREFIX + each.name.upper()):
            values[each.name] = _parse_value(each.name, text, each.type)
    if "model_dir" not in values:
        raise ModelError(f"the server's environment has no {_VARIABLE_PREFIX}MODEL_DIR, the folder of the model")
    return EngineConfig(**values)


def find_engine_urls(text: str) -> list[str]:
    """The addresses in an `engine_url`, without the /v1 that clients of OpenAI's need at the end.

    After a # is the model's name at the server, and after that a ?, if the server need not have it under that name.
    HOST:PORT alone is at http://, which is refused elsewhere for another machine.
    Raises ModelError for what is none. It does not repeat a password.
    """
    if "@" in re.sub("#[^,]*", "", text):
        raise ModelError("an engine's address has no user and no password: its key is in MIDTOKEN_ENGINE_KEY or a file")
    return [_read_engine_url(each.strip()) for each in text.split(",")]


def _read_engine_url(url: str) -> str:
    with suppress(ValueError):  # of its port, or of brackets
        parts = urlsplit(re.sub(r"^(?=[\w.-]+:\d|\[)", "http://", url))
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and not parts.query:
            name = f"#{parts.fragment}" if parts.fragment else ""
            return f"{parts.scheme}://{parts.netloc}{re.sub('(/v1)?/*$', '', parts.path)}{name}"
    shown = quote(url.partition("?")[0])
    raise ModelError(f"an engine's address is one such as http://127.0.0.1:8080, not {shown}; commas separate several")


def config_to_environment(config: EngineConfig) -> dict[str, str]:
    """The variables from which `config_from_environment` reads this config."""
    fields = dataclasses.fields(EngineConfig)
    values = {field.name: getattr(config, field.name) for field in fields}
    return {_VARIABLE_PREFIX + name.upper(): "" if value is None else str(value) for name, value in values.items()}


def _parse_value(name: str, text: str, kind: Any) -> Any:
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ModelError(f"{name} must be true or false, not {quote(text)}")
        return text.lower() == "true"
    if kind in (int, int | None) and not re.fullmatch("-?[0-9]{1,18}", text):
        low, high = _RANGES[name]
        raise ModelError(f"{name} must be a whole number between {low} and {high}, not {quote(text)}")
    if kind in (int, int | None):
        return int(text)
    return Path(text) if kind == Path | None else kind(text)
