"""What a person may set, from `initializationOptions` and the editor's configuration."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from inference.protocol.completion import MAX_NEW_TOKENS, Extent, Healing

SECTION = "midtoken"


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings with their defaults. On the wire their names are in camel case: `maxTokens`."""

    enabled: bool = True
    extent: Extent = Extent.AUTO  # how far a suggestion may go
    max_tokens: int = 64
    healing: Healing = Healing.EXACT
    deadline_ms: int | None = None  # generation stops then, with what there is
    max_prefix_bytes: int = 8192  # how much text before the cursor is sent
    max_suffix_bytes: int = 2048  # and after it


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """Settings, and a line for a person about each value that could not be used."""

    settings: Settings
    problems: tuple[str, ...]


def read_settings(values: Any, base: Settings) -> ReadSettings:
    """`base` changed by what `values` says. Never raises: what cannot be used is left at `base` and told.

    `values` is whatever JSON the editor sent (hence Any): an object of settings, one that holds them under
    "midtoken", or null for none.
    """
    if isinstance(values, Mapping) and SECTION in values:
        values = values[SECTION]
    if values is None or values == []:  # Lua's empty table arrives as an empty list
        return ReadSettings(base, ())
    if not isinstance(values, Mapping):
        return ReadSettings(base, (f"settings must be an object of names and values, not {_show(values)}",))
    fields, problems = {}, []
    for name, value in values.items():
        setting = _SETTINGS.get(name)
        if setting is None:
            problems.append(f"unknown setting {_show(name)}; known are {', '.join(_SETTINGS)}")
            continue
        try:
            fields[setting.field] = setting.read(value)
        except ValueError as error:
            kept = getattr(base, setting.field)
            problems.append(f"setting {name} must be {error}, not {_show(value)}; it stays {_show(kept)}")
    return ReadSettings(dataclasses.replace(base, **fields), tuple(problems))


@dataclass(frozen=True, slots=True)
class _Setting:
    field: str
    read: Callable[[Any], Any]  # raises ValueError("what it must be")


def _read_bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def _one_of(kind: type[Extent] | type[Healing]) -> Callable[[Any], Extent | Healing]:
    def read(value: Any) -> Extent | Healing:
        try:
            return kind(value)
        except ValueError:
            raise ValueError(f"one of {', '.join(kind)}") from None

    return read


def _between(low: int, high: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        # Lua and JavaScript have one kind of number, so a whole float is an integer as well as any.
        if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1:
            raise ValueError(f"a whole number from {low} to {high}")
        if not low <= value <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return int(value)

    return read


def _or_null(read: Callable[[Any], int]) -> Callable[[Any], int | None]:
    return lambda value: None if value is None else read(value)


def _show(value: Any) -> str:
    text = repr(str(value)) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."


_SETTINGS: Mapping[str, _Setting] = {
    "enabled": _Setting("enabled", _read_bool),
    "extent": _Setting("extent", _one_of(Extent)),
    "maxTokens": _Setting("max_tokens", _between(1, MAX_NEW_TOKENS)),
    "healing": _Setting("healing", _one_of(Healing)),
    "deadlineMs": _Setting("deadline_ms", _or_null(_between(1, 3_600_000))),
    "maxPrefixBytes": _Setting("max_prefix_bytes", _between(256, 1_048_576)),
    "maxSuffixBytes": _Setting("max_suffix_bytes", _between(0, 1_048_576)),
}
