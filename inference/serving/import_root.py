"""The folder that this package is imported from, because processes that midtoken starts must import the same code."""

import sysconfig
from pathlib import Path

import inference

IMPORT_ROOT = Path(inference.__file__).resolve().parents[1]  # the folder from which `import inference` works


def is_checkout() -> bool:
    """True if this code runs from a source tree, False if it is installed in site-packages."""
    return IMPORT_ROOT not in {Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib")}
