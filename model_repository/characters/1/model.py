"""The character-level model; see `inference.hosting.models`."""

from inference.hosting.models import CharacterModel as TritonPythonModel

__all__ = ["TritonPythonModel"]
