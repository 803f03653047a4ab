"""A model's heartbeat: how long ago the thread that does its work last made progress.

A probe that is a real request waits behind other requests, so a busy server looks dead. A heartbeat is read by the
model's front and answered at once, however much work there is.
"""

from collections.abc import Mapping

import numpy as np

from inference.errors import ServerError
from inference.protocol.arrays import Array, FieldTypes

HEARTBEAT = "heartbeat"  # the input that asks for it; the model's required inputs stand beside it and are empty
HEARTBEAT_TYPES: FieldTypes = {HEARTBEAT: ("BOOL", np.bool_)}
HEARTBEAT_ANSWER = "heartbeat_ms"  # the one output: milliseconds without progress, 0 while there is nothing to do
HEARTBEAT_ANSWER_TYPES: FieldTypes = {HEARTBEAT_ANSWER: ("FP32", np.float32)}


def asks_for_heartbeat(arrays: Mapping[str, Array]) -> bool:
    """True for a request that is answered with `heartbeat_to_arrays` and nothing else."""
    return HEARTBEAT in arrays and bool(np.all(arrays[HEARTBEAT]))


def heartbeat_to_arrays(without_progress_ms: float) -> dict[str, Array]:
    """The answer."""
    return {HEARTBEAT_ANSWER: np.array([without_progress_ms], np.float32)}


def heartbeat_from_arrays(arrays: Mapping[str, Array]) -> float:
    """Milliseconds without progress. Raises ServerError where the answer holds none."""
    if HEARTBEAT_ANSWER not in arrays:
        raise ServerError("the server answered a request for its heartbeat with something else")
    return float(arrays[HEARTBEAT_ANSWER].reshape(-1)[0])
