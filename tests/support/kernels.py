"""Runs the kernels of the Triton language without a GPU."""

import os
from importlib.util import find_spec

import pytest

IS_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
_HAS_TRITON = find_spec("triton") is not None

interpreted = pytest.mark.skipif(not (_HAS_TRITON and IS_INTERPRETED), reason="runs in `make test-kernels`")
compiled = pytest.mark.skipif(not _HAS_TRITON or IS_INTERPRETED, reason="runs in `make test-kernels`")
