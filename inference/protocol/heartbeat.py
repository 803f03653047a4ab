"""A model's heartbeat: how long ago the model's worker thread last made progress.

A normal request as a probe would wait for other requests, and a busy server would look dead. `model.py` answers a
heartbeat request at once, however long the queue is.
"""

from collections.abc import Mapping

import numpy as np

from inference.errors import ServerError
from inference.protocol.arrays import Array, FieldTypes

HEARTBEAT = "heartbeat"  # the input that requests it; required inputs of the model are sent too, empty
HEARTBEAT_TYPES: FieldTypes = {HEARTBEAT: ("BOOL", np.bool_)}
HEARTBEAT_ANSWER = "heartbeat_ms"  # the only output: milliseconds without progress, 0 while idle
HEARTBEAT_ANSWER_TYPES: FieldTypes = {HEARTBEAT_ANSWER: ("FP32", np.float32)}


def asks_for_heartbeat(arrays: Mapping[str, Array]) -> bool:
    """True for a heartbeat request."""
    return HEARTBEAT in arrays and bool(np.all(arrays[HEARTBEAT]))


def heartbeat_to_arrays(without_progress_ms: float) -> dict[str, Array]:
    """The arrays of the answer to a heartbeat request."""
    return {HEARTBEAT_ANSWER: np.array([without_progress_ms], np.float32)}


def heartbeat_from_arrays(arrays: Mapping[str, Array]) -> float:
    """Milliseconds without progress. Raises ServerError if the arrays are not an answer to a heartbeat request."""
    if HEARTBEAT_ANSWER not in arrays:
        raise ServerError("the server answered a request for its heartbeat with something else")
    return float(arrays[HEARTBEAT_ANSWER].reshape(-1)[0])
