"""A model's heartbeat: how long ago the thread that does its work last made progress.

A probe that is a real request waits behind other requests, so a busy server looks dead. A request for the heartbeat
is answered by `model.py` at once, however much work there is.
"""

from collections.abc import Mapping

import numpy as np

from inference.errors import ServerError
from inference.protocol.arrays import Array, FieldTypes

HEARTBEAT = "heartbeat"  # the input that asks for it; the inputs that the model requires are given too, and are empty
HEARTBEAT_TYPES: FieldTypes = {HEARTBEAT: ("BOOL", np.bool_)}
HEARTBEAT_ANSWER = "heartbeat_ms"  # the only output: milliseconds without progress, 0 while there is nothing to do
HEARTBEAT_ANSWER_TYPES: FieldTypes = {HEARTBEAT_ANSWER: ("FP32", np.float32)}


def asks_for_heartbeat(arrays: Mapping[str, Array]) -> bool:
    """True for a request whose only answer is that of `heartbeat_to_arrays`."""
    return HEARTBEAT in arrays and bool(np.all(arrays[HEARTBEAT]))


def heartbeat_to_arrays(without_progress_ms: float) -> dict[str, Array]:
    """The arrays of the answer."""
    return {HEARTBEAT_ANSWER: np.array([without_progress_ms], np.float32)}


def heartbeat_from_arrays(arrays: Mapping[str, Array]) -> float:
    """Milliseconds without progress. Raises ServerError where the arrays are not an answer to this request."""
    if HEARTBEAT_ANSWER not in arrays:
        raise ServerError("the server answered a request for its heartbeat with something else")
    return float(arrays[HEARTBEAT_ANSWER].reshape(-1)[0])
