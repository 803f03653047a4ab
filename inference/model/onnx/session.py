"""Sessions of onnxruntime with this project's settings."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime

_FATAL_ONLY = 4  # of log levels; errors are raised
_BFLOAT16 = 16  # of onnx.TensorProto.DataType


def open_session(path: Path, num_threads: int) -> onnxruntime.InferenceSession:
    """The session of a graph in a file, with its constants beside it. Raises what onnxruntime raises."""
    return onnxruntime.InferenceSession(str(path), _build_options(num_threads), ["CPUExecutionProvider"])


def build_session(
    model: bytes, constants: Mapping[str, npt.NDArray[Any]], num_threads: int
) -> onnxruntime.InferenceSession:
    """The session of a graph in memory. The arrays must exist as long as the session."""
    options = _build_options(num_threads)
    options.add_external_initializers(list(constants), [_to_value(array) for array in constants.values()])
    return onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"])


def _build_options(num_threads: int) -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = num_threads
    options.inter_op_num_threads = 1
    options.enable_mem_pattern = False  # it would keep a plan for each length of a sequence
    options.log_severity_level = _FATAL_ONLY
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # the cores belong to others as well
    return options


def _to_value(array: npt.NDArray[Any]) -> onnxruntime.OrtValue:
    if array.dtype.name == "bfloat16":
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(array.view(np.uint16), _BFLOAT16)
    return onnxruntime.OrtValue.ortvalue_from_numpy(array)
