"""Code completion at a cursor; see `inference.hosting.completion`."""

from inference.hosting.completion import TritonPythonModel

__all__ = ["TritonPythonModel"]
