"""The character-level model; see `inference.hosting.characters`."""

from inference.hosting.characters import TritonPythonModel

__all__ = ["TritonPythonModel"]
