"""Code completion at a cursor; see `inference.hosting.models`."""

from inference.hosting.models import CompletionModel as TritonPythonModel

__all__ = ["TritonPythonModel"]
