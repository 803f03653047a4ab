"""Sessions of onnxruntime. No other module may import that library, because its telemetry has to be off before.

Switched off later, it has already written an id of this user to the cache folder, and looks up a host to send it to.
"""

import os

from inference.errors import ORT_TELEMETRY

if os.environ.get(ORT_TELEMETRY) != "1":  # in a program that is not ours
    os.environ[ORT_TELEMETRY] = "1"
from onnxruntime import InferenceSession, SessionOptions
from onnxruntime import __version__ as VERSION  # noqa: N812

__all__ = ["VERSION", "InferenceSession", "open_session"]

_FATAL_ONLY = 4  # of log levels; errors are raised


def open_session(graph: str | bytes, num_threads: int) -> InferenceSession:
    """A session that runs a graph: the path of its file, or its content."""
    options = SessionOptions()
    options.intra_op_num_threads = num_threads
    options.inter_op_num_threads = 1
    options.enable_mem_pattern = False  # it would keep a plan for each length of a sequence
    options.log_severity_level = _FATAL_ONLY
    # Long enough for the gap between two operators, and no longer: the cores belong to others as well.
    options.add_session_config_entry("session.intra_op.spin_duration_us", "50")
    return InferenceSession(graph, options, ["CPUExecutionProvider"])
