"""Rotary positions: the angle by which each pair of numbers of a query or key is turned at each position."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

_DEFAULT_THETA = 10_000.0
_KINDS: dict[str, tuple[str, ...]] = {  # and the numbers that each needs
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
}
_NAMES = ("rope_type", "type", "rope_theta")


@dataclass(frozen=True, slots=True)
class Rotary:
    """The frequencies of rotary positions."""

    frequencies: npt.NDArray[np.float32]  # [head_dim / 2], angle per position

    def build_tables(self, num_positions: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """The cosines and sines of the angles at the first positions, [num_positions, head_dim / 2] each."""
        angles = np.arange(num_positions, dtype=np.float32)[:, None] * self.frequencies
        return np.cos(angles), np.sin(angles)


def find_rotary_obstacle(content: Mapping[str, Any]) -> str | None:
    """Why the rotary positions of a parsed config.json cannot be computed; None if they can."""
    if content.get("rope_parameters") is not None and content.get("rope_scaling") is not None:
        return "its config.json has both rope_parameters and rope_scaling"
    parameters = _find_parameters(content)
    if not isinstance(parameters, Mapping):
        return "the scaling of rotary positions in its config.json is not a table"
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    if not isinstance(kind, str) or kind not in _KINDS:
        return f"its rotary positions are of the type {kind!r}, and only {', '.join(_KINDS)} run without torch"
    for name in parameters:
        if name not in _NAMES and name not in _KINDS[kind]:
            if kind == "default" and name in _KINDS["llama3"]:
                continue  # left over in a configuration whose scaling was switched off
            return f"its rotary positions have the setting {name!r}, which is not known here"
    for name in ("rope_theta", *_KINDS[kind]):
        value = parameters.get(name, content.get(name, _DEFAULT_THETA) if name == "rope_theta" else None)
        if not _is_positive(value):
            return f"the setting {name} of its rotary positions must be a positive number, not {value!r}"
    if kind == "llama3" and not parameters["low_freq_factor"] < parameters["high_freq_factor"]:
        return "low_freq_factor of its rotary positions is not smaller than high_freq_factor"
    return None


def read_rotary(content: Mapping[str, Any], head_dim: int) -> Rotary:
    """The rotary positions of a parsed config.json in which `find_rotary_obstacle` finds nothing."""
    parameters = _find_parameters(content)
    theta = np.float32(parameters.get("rope_theta", content.get("rope_theta", _DEFAULT_THETA)))
    exponents = np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)
    frequencies: npt.NDArray[np.float32] = (1 / theta**exponents).astype(np.float32)
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    if kind == "linear":
        frequencies = frequencies / np.float32(parameters["factor"])
    elif kind == "llama3":
        frequencies = _scale_low_frequencies(frequencies, parameters)
    return Rotary(frequencies)


def _find_parameters(content: Mapping[str, Any]) -> Any:
    parameters = content.get("rope_parameters")
    if parameters is None:
        parameters = content.get("rope_scaling")
    return {} if parameters is None else parameters


def _scale_low_frequencies(
    frequencies: npt.NDArray[np.float32], parameters: Mapping[str, Any]
) -> npt.NDArray[np.float32]:
    """Llama 3.1's scaling: low frequencies are divided by the factor, high ones stay, those between are mixed."""
    low, high = parameters["low_freq_factor"], parameters["high_freq_factor"]
    turns = parameters["original_max_position_embeddings"] * frequencies.astype(np.float64) / (2 * math.pi)
    share = np.clip((turns - low) / (high - low), 0, 1)  # of the frequency as it is
    scaled: npt.NDArray[np.float64] = share * frequencies + (1 - share) * frequencies / parameters["factor"]
    return scaled.astype(np.float32)


def _is_positive(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0
