"""Makes the windows of a model's attention small for a while, so that a few tokens reach beyond them."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

# Numbers of tokens. They differ, so that `build_reach` can tell windows and chunks apart.
NARROW_WINDOW = 5
NARROW_CHUNK = 4

_WINDOW_NAME = re.compile(r"(.*_)?(sliding_window(_size)?|window_size|local_attention)")
_CHUNK_NAME = re.compile(r"attention_chunk_size")


@contextmanager
def narrow_windows(model: torch.nn.Module) -> Iterator[None]:
    """Inside the context, all windows and chunks that the model's configurations and modules name are small."""
    changed: list[tuple[Any, str, int]] = []
    try:
        for owner in _iter_owners(model):
            for name, value in list(vars(owner).items()):
                size = _find_narrow_size(name)
                if size is not None and type(value) is int and value > size:
                    changed.append((owner, name, value))
                    setattr(owner, name, size)
        yield
    finally:
        for owner, name, value in changed:
            setattr(owner, name, value)


def _find_narrow_size(name: str) -> int | None:
    if _CHUNK_NAME.fullmatch(name):
        return NARROW_CHUNK
    return NARROW_WINDOW if _WINDOW_NAME.fullmatch(name) else None


def _iter_owners(model: torch.nn.Module) -> Iterator[Any]:
    """The model's modules and all their configurations, each once."""
    configs: dict[int, Any] = {}
    for module in model.modules():
        yield module
        config = getattr(module, "config", None)
        if config is not None:
            configs[id(config)] = config
            text_config = config.get_text_config(decoder=True)
            configs[id(text_config)] = text_config
    yield from configs.values()
