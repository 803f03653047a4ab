"""Rotary positions, and their scalings, as transformers computes them from config.json."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from inference.errors import ModelError, refuse

_KINDS = ("default", "linear", "dynamic", "llama3", "yarn", "longrope")  # of scaling
_ORIGINAL = "original_max_position_embeddings"
_PART = "partial_rotary_factor"

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Rotary:
    """The frequencies of rotary positions, up to the position where they would become others."""

    frequencies: Floats  # [head_dim / 2], angle per position; 0 for pairs of numbers that are not turned
    max_tokens: int
    num_turned: int  # numbers of a head
    scale: float = 1  # of cosines and sines

    def build_tables(self, num_positions: int) -> tuple[Floats, Floats]:
        """The cosines and sines of the angles at the first positions, [num_positions, head_dim / 2] each."""
        angles = np.arange(num_positions, dtype=np.float32)[:, None] * self.frequencies
        scales = np.where(self.frequencies == 0, 1, self.scale).astype(np.float32)
        return np.cos(angles) * scales, np.sin(angles) * scales

    def list_order(self) -> list[int]:
        """The order of a head's numbers in which the turned pairs are half a head apart, as all pairs are here."""
        half, turned = len(self.frequencies), self.num_turned // 2
        first, second, others = range(turned), range(turned, 2 * turned), range(2 * turned, 2 * half)
        return [*first, *others[: half - turned], *second, *others[half - turned :]]


def read_rotary(content: Mapping[str, Any], head_dim: int, *, is_partial: bool, aliases: Mapping[str, str]) -> Rotary:
    """The rotary positions of a parsed config.json. Raises ModelError with the reason if they cannot be computed.

    `content` has rope_theta and max_position_embeddings. `is_partial`: only a part of each head may be turned.
    `aliases`: other names for kinds of scaling.
    """
    settings = _Settings(content, _find_parameters(content))
    kind = settings.parameters.get("rope_type", settings.parameters.get("type", "default"))
    kind = aliases.get(str(kind), kind)
    if kind not in _KINDS:
        raise ModelError(f"its rotary positions are of the type {kind!r}, and only {', '.join(_KINDS)} are known")
    part, theta = settings.read(_PART, content.get(_PART) or 1), settings.read("rope_theta", content["rope_theta"], 1)
    num_turned = int(head_dim * part)
    if num_turned > head_dim or (num_turned < head_dim and not is_partial) or num_turned % 2:
        raise ModelError(f"its config.json has {_PART} = {part}, which does not run without torch")
    exponents = np.arange(0, num_turned, 2, dtype=np.float32) / np.float32(num_turned)
    periods = (np.float32(theta) ** exponents).astype(np.float32)
    frequencies, max_tokens, scale = 1 / periods, content["max_position_embeddings"], 1.0
    if kind == "linear":
        frequencies = frequencies / np.float32(settings.read("factor"))
    elif kind == "llama3":
        frequencies = _scale_low_frequencies(frequencies, settings)
    elif kind == "yarn":
        frequencies, scale = _mix_frequencies(periods, theta, settings), _find_yarn_scale(settings)
    elif kind == "longrope":
        max_tokens = min(max_tokens, int(settings.read_original()))  # then its frequencies are others
        frequencies, scale = 1 / (settings.read_factors(len(periods)) * periods), _find_longrope_scale(settings)
    padding = np.zeros(head_dim // 2 - len(periods))
    return Rotary(np.concatenate([frequencies, padding]).astype(np.float32), max_tokens, num_turned, scale)


@dataclass(frozen=True, slots=True)
class _Settings:
    """The settings of the scaling, and the fields of the configuration."""

    content: Mapping[str, Any]
    parameters: Mapping[str, Any]

    def read(self, name: str, default: object = None, low: float = 0) -> float:
        """A number greater than `low`. Raises ModelError."""
        value = self.parameters.get(name)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int | float) or not low < value < math.inf:
            raise ModelError(f"{name} of its rotary positions must be a number greater than {low}, not {value!r}")
        return value

    def read_original(self) -> float:
        """The number of tokens before scaling."""
        has_field = _ORIGINAL in self.content  # goes before the setting
        settings = _Settings({}, self.content) if has_field else self
        return settings.read(_ORIGINAL, None if has_field else self.content["max_position_embeddings"], 1)

    def read_factors(self, size: int) -> Floats:
        """The factors of the periods of longrope in texts that are not longer than the original ones."""
        factors = self.parameters.get("short_factor")
        if not isinstance(factors, list) or len(factors) != size:
            raise ModelError(f"short_factor of its rotary positions must be a list of {size} numbers")
        return np.array([self.read("one of short_factor", factor) for factor in factors], np.float32)


def _find_parameters(content: Mapping[str, Any]) -> Mapping[str, Any]:
    tables = [content[name] for name in ("rope_parameters", "rope_scaling") if content.get(name) is not None]
    if len(tables) > 1:
        raise ModelError("its config.json has both rope_parameters and rope_scaling")
    table = tables[0] if tables else {}
    if not isinstance(table, Mapping):
        raise ModelError("the scaling of rotary positions in its config.json is not a table")
    refuse(
        ModelError,
        {
            f"its rotary positions have settings of their own for {name!r}": isinstance(value, Mapping)
            for name, value in table.items()
        },
    )
    return table


def _scale_low_frequencies(frequencies: Floats, settings: _Settings) -> Floats:
    """Llama 3.1's scaling: low frequencies are divided by the factor, high ones stay, those between are mixed."""
    low, high = settings.read("low_freq_factor"), settings.read("high_freq_factor")
    if not low < high:
        raise ModelError("low_freq_factor of its rotary positions is not smaller than high_freq_factor")
    turns = settings.read_original() * frequencies.astype(np.float64) / (2 * math.pi)
    share = np.clip((turns - low) / (high - low), 0, 1)  # of the frequency as it is
    scaled: npt.NDArray[np.float64] = share * frequencies + (1 - share) * frequencies / settings.read("factor")
    return scaled.astype(np.float32)


def _mix_frequencies(periods: Floats, theta: float, settings: _Settings) -> Floats:
    """YaRN's scaling (https://arxiv.org/abs/2309.00071): as Llama 3.1's, but interpolated by the frequency's index."""
    size, original = 2 * len(periods), settings.read_original()

    def find_place(setting: str, default: float) -> float:
        return size * math.log(original / (settings.read(setting, default) * 2 * math.pi)) / (2 * math.log(theta))

    low, high = find_place("beta_fast", 32), find_place("beta_slow", 1)
    if settings.parameters.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, size - 1)
    share = np.clip((np.arange(len(periods)) - low) / (high - low or 0.001), 0, 1)
    mixed: npt.NDArray[np.float64] = share / (settings.read("factor") * periods) + (1 - share) / periods
    return mixed.astype(np.float32)


def _find_yarn_scale(settings: _Settings) -> float:
    factor, share, share_of_scores = (settings.read(name, 1) for name in ("factor", "mscale", "mscale_all_dim"))
    both = settings.parameters.get("mscale") and settings.parameters.get("mscale_all_dim")
    ratio = _grow(factor, share) / _grow(factor, share_of_scores) if both else _grow(factor, 1)
    return settings.read("attention_factor", ratio)


def _find_longrope_scale(settings: _Settings) -> float:
    original = settings.read_original()
    factor = settings.read("factor", settings.content["max_position_embeddings"] / original)
    return settings.read("attention_factor", math.sqrt(1 + math.log(max(factor, 1)) / math.log(original)))


def _grow(factor: float, share: float) -> float:
    return 0.1 * share * math.log(max(factor, 1)) + 1
