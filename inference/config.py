"""The configuration of an engine: what the command line and the one variable of the environment name, and its ranges.

The entry points make it once and pass it on. A server's own process gets it as JSON in `VARIABLE`.
"""

import dataclasses
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self  # a field's default and its JSON are of its type
from urllib.parse import urlsplit

from inference.errors import ModelError, check_ranges, quote

VARIABLE = "MIDTOKEN_CONFIG"
AUTO_LAYOUT = "auto"
AUTO_DTYPE = "auto"
_DTYPES = (AUTO_DTYPE, "float32", "int8", "int4", "bfloat16", "float16", "float64")
AUTO_DEVICE = "auto"
DEFAULT_CONTEXT_TOKENS = 1024
MAX_CONTEXT_TOKENS = 1_048_576
MIN_PROMPT_TOKENS = 16  # fewer leave hardly any text before the cursor


@dataclass(frozen=True, slots=True)
class Option:
    """How the command line names a field."""

    name: str
    metavar: str
    about: str


def _field(default: Any, limits: tuple[int, int] | None = None, option: Option | None = None) -> Any:
    return field(default=default, metadata={"limits": limits, **({"option": option} if option else {})})


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """How to load and run one model."""

    model_dir: Path  # config.json, tokenizer.json, and *.safetensors or model.gguf
    device: str = _field(
        AUTO_DEVICE,
        option=Option(
            "device",
            "DEVICE",
            "where the model runs: cpu, or a device of torch or llama.cpp such as cuda or metal; auto: the CPU or, for "
            "a GGUF file, the GPU that llama.cpp was built for (default: auto)",
        ),
    )
    dtype: str = _field(
        AUTO_DTYPE,
        option=Option(
            "dtype",
            "TYPE",
            "the precision: float32; on a CPU int8 or int4, the bits of a weight; a torch dtype such as bfloat16; or "
            "auto: what the model's folder names, otherwise what suits the model's size (default: auto)",
        ),
    )
    num_threads: int | None = _field(
        None,
        (1, 1024),
        Option(
            "threads",
            "N",
            "threads on the CPU (default: one for a small model; for others, all cores but one, or both of two)",
        ),
    )
    max_sequences: int = _field(16, (1, 1024))  # running sequences, one for each candidate
    max_context_tokens: int | None = _field(
        None,
        (MIN_PROMPT_TOKENS, MAX_CONTEXT_TOKENS),
        Option(
            "context",
            "N",
            "the most tokens of a prompt; auto: 1024 to 8192, the fewer the larger the model is, or what its folder "
            "names (default: auto)",
        ),
    )
    cache_tokens: int = _field(65_536, (2 * MIN_PROMPT_TOKENS, 1_073_741_824))  # keys and values of all sequences
    memory_mib: int = _field(
        256,
        (0, 1_048_576),
        Option(
            "cache-ram",
            "MIB",
            "memory for texts that were read, which are then read no second time; a server for a team needs more "
            "(default: 256)",
        ),
    )
    fill_in_layout: str = AUTO_LAYOUT  # a member of inference.engine.fill_in.Layout; auto: what the model names
    graph_dir: Path | None = None  # where models that were converted for onnxruntime are kept; None: nowhere
    engine_url: str = ""  # of `find_engine_url`: a server that has the weights; empty: the model runs here
    engine_key: str = field(default="", repr=False)  # for it; a secret

    def __post_init__(self) -> None:
        """Raises ModelError, naming the field, if a number is out of range or no such dtype exists."""
        fields = {each.name: each.metadata.get("limits") for each in dataclasses.fields(self)}
        check_ranges(self, {name: limits for name, limits in fields.items() if limits}, ModelError)
        if self.dtype not in _DTYPES:
            raise ModelError(f"dtype must be one of {', '.join(_DTYPES)}, not {quote(self.dtype)}")

    def to_json(self) -> str:
        """Returns the value of `VARIABLE` for this configuration: the fields that are not as by default."""
        values = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        changed = {
            each.name: values[each.name] for each in dataclasses.fields(self) if values[each.name] != each.default
        }
        return json.dumps(changed, default=str, sort_keys=True)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """Reads `VARIABLE`. Raises ModelError, which names a field that is missing, unknown or of another type."""
        try:
            values = json.loads(environment.get(VARIABLE, "{}"))
        except ValueError:
            values = None
        if not isinstance(values, dict):
            raise ModelError(f"{VARIABLE} in the server's environment is no JSON object")
        if "model_dir" not in values:
            raise ModelError(f"{VARIABLE} in the server's environment has no model_dir, the folder of the model")
        types = {each.name: each.type for each in dataclasses.fields(cls)}
        if unknown := next((name for name in values if name not in types), ""):
            raise ModelError(f"{VARIABLE} has the unknown field {quote(unknown)}; known are {', '.join(types)}")
        return cls(**{name: _read(name, value, types[name]) for name, value in values.items()})


def _read(name: str, value: Any, kind: Any) -> Any:
    if kind in (Path, Path | None) and isinstance(value, str):
        return Path(value)
    if type(value) is bool or not isinstance(value, kind):
        wanted = "a whole number" if kind in (int, int | None) else "a string"
        raise ModelError(f"{name} must be {wanted}, not {quote(json.dumps(value))}")
    return value


def find_engine_url(text: str) -> str:
    """Returns an engine's address, without the /v1 that clients of OpenAI's need at the end.

    After a # is the model's name at the server, and after that a ?, if the server need not have it under that name.
    HOST:PORT alone is at http://, which is refused elsewhere for another machine.
    Raises ModelError for what is none. It does not repeat a password.
    """
    if "@" in text.partition("#")[0]:
        raise ModelError("an engine's address has no user and no password: its key is in MIDTOKEN_ENGINE_KEY or a file")
    with suppress(ValueError):  # of its port, or of brackets
        parts = urlsplit(re.sub(r"^(?=[\w.-]+:\d|\[)", "http://", text.strip()))
        is_one = parts.hostname and parts.port != 0 and not parts.query and "," not in parts.netloc
        if parts.scheme in ("http", "https") and is_one:
            name = f"#{parts.fragment}" if parts.fragment else ""
            return f"{parts.scheme}://{parts.netloc}{re.sub('(/v1)?/*$', '', parts.path)}{name}"
    raise ModelError(f"an engine's address is one such as http://127.0.0.1:8080, not {quote(text.partition('?')[0])}")
