"""midtoken completes code from any cursor position. The library's names are here; see `midtoken.api`."""

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

_SPEC = find_spec("inference")
_PLACE = Path(_SPEC.origin) if _SPEC is not None and _SPEC.origin is not None else None
if _PLACE is None or 'OWNER = "midtoken"' not in _PLACE.read_text(encoding="utf-8"):
    sys.exit(
        f"midtoken: the package `inference` at {_PLACE} is not midtoken's, but another one of this name: install "
        "midtoken in a virtual environment of its own, and do not run `python -m midtoken` beside such a folder"
    )

if TYPE_CHECKING:
    from inference.protocol.characters import NextByte
    from midtoken.api import Completion, MidtokenError, Model, Token, load

__all__ = ["Completion", "MidtokenError", "Model", "NextByte", "Token", "load"]


def __getattr__(name: str) -> Any:  # PEP 562: commands that use none of them start without what they import
    if name not in __all__:
        raise AttributeError(f"module 'midtoken' has no attribute {name!r}")
    from midtoken import api

    return getattr(api, name)
