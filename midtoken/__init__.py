"""The `midtoken` command."""

import sys
from importlib.util import find_spec
from pathlib import Path

_SPEC = find_spec("inference")
_PLACE = Path(_SPEC.origin) if _SPEC is not None and _SPEC.origin is not None else None
if _PLACE is None or 'OWNER = "midtoken"' not in _PLACE.read_text(encoding="utf-8"):
    sys.exit(
        f"midtoken: the package `inference` at {_PLACE} is not midtoken's, but another one of this name: install "
        "midtoken in a virtual environment of its own, and do not run `python -m midtoken` beside such a folder"
    )
