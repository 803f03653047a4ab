"""Where the parts lie that are no Python modules: beside the packages, or under share/midtoken if installed."""

import sysconfig
from pathlib import Path

import inference
from inference.errors import LaunchError

IMPORT_ROOT = Path(inference.__file__).resolve().parents[1]  # the folder from which `import inference` works


def is_checkout() -> bool:
    """True where this code runs from a source tree, false from an environment's site-packages."""
    return str(IMPORT_ROOT) not in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}


def find_model_repository() -> Path:
    """Triton's model repository."""
    return _find("model_repository")


def find_default_model() -> Path:
    """The folder of the model that comes with midtoken. Raises LaunchError where it did not come along."""
    return _find("models/default")


def _find(name: str) -> Path:
    places = [IMPORT_ROOT / name, Path(sysconfig.get_path("data")) / "share" / "midtoken" / name]
    for place in places:
        if place.is_dir():
            return place
    raise LaunchError(f"{name} is missing; looked for {' and '.join(map(str, places))}")
