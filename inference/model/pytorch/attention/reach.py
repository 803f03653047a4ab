"""How far back the tokens of a layer see. This is all that `attention.attend` takes from a mask of transformers."""

from dataclasses import dataclass
from typing import Any, NoReturn

from inference.errors import ModelError


@dataclass(frozen=True, slots=True)
class Reach:
    """How far back the rows of a layer see: to the first token if both numbers are None."""

    window: int | None = None  # the nearest tokens, the row's own included
    chunk: int | None = None  # tokens of the row's own chunk; chunks of this size begin at position 0
    fault: str | None = None  # what else the mask does, which is not supported

    @property
    def num_tokens(self) -> int | None:
        """The most tokens that a row sees."""
        return self.window if self.chunk is None else self.chunk

    def __getattr__(self, name: str) -> NoReturn:
        """Refuses models whose code does more with a mask than to pass it on."""
        if name.startswith("__"):  # Python asks for these itself
            raise AttributeError(name)
        raise ModelError(f"its code computes with the attention's mask (.{name}), and here each sequence has its own")

    def __getitem__(self, _index: object) -> NoReturn:
        raise ModelError("its code takes a part of the attention's mask, and here each sequence has its own")


def build_reach(*_args: Any, config: Any = None, local_size: int | None = None, **others: Any) -> Reach:
    """The reach of a mask that transformers describes by its own arguments."""
    if "allow_is_bidirectional_skip" in others:
        return Reach(fault="lets tokens see those after them, so it does not predict the next token")
    if others.get("use_vmap"):
        return Reach(fault="joins the mask of earlier tokens with another one")
    if local_size is None:
        return Reach()
    if getattr(config, "attention_chunk_size", None) != local_size:
        return Reach(window=local_size)
    if getattr(config, "sliding_window", None) == local_size:
        return Reach(fault=f"has windows and chunks of the same {local_size} tokens, so they cannot be told apart")
    return Reach(chunk=local_size)
