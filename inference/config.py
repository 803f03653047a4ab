"""What an engine is built from. Read once at the entry point and handed in."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """How to load and run one model."""

    model_dir: Path  # a folder in Hugging Face layout: config.json, *.safetensors, tokenizer.json
    device: str = "cpu"  # a torch device
    dtype: str = "float32"  # a torch dtype; bfloat16 on a GPU
    num_threads: int = 1  # torch threads on the CPU; more than one collapses beside busy neighbours
    max_sequences: int = 16  # stepped together; each candidate is one
    max_waiting: int = 64  # requests that wait for room before new ones are refused
    max_context_tokens: int = 1024  # prompt tokens a request may use; further capped by the model's window
    cache_tokens: int = 65_536  # room of the KV store, all sequences together
    fim_order: str = "psm"  # prefix-suffix-middle, or "spm"
    warm: bool = True  # run one small completion while loading
