"""The user's settings, read from initializationOptions and the editor's configuration."""

import dataclasses
import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from inference.config import DEFAULT_CONTEXT_TOKENS, MAX_CONTEXT_TOKENS, MIN_PROMPT_TOKENS
from inference.protocol.completion import MAX_NEW_TOKENS, Extent, Healing

SECTION = "midtoken"
ANY_LANGUAGE = "*"  # in the setting `languages`


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings and their defaults. Editors send the names in camel case: `maxTokens`."""

    enabled: bool = True
    extent: Extent = Extent.AUTO  # how far a suggestion goes
    max_tokens: int = 64
    healing: Healing = Healing.EXACT
    confidence: float = 0.55  # the least probability of what is suggested unasked; 0: the whole line or block is
    deadline_ms: int | None = None  # generation stops after this time; the text so far is suggested
    context: int | None = None  # the most tokens of a prompt; None: what the server says
    prefetch: bool = True  # whether text is sent and read before a key asks for it
    exclude: tuple[str, ...] = ()  # patterns as in .gitignore; of documents that match one, nothing is sent
    redact_secrets: bool = True  # known forms of secrets are replaced in text that may go to another machine
    model: str | None = None  # what --model takes; None: that of the command line
    languages: tuple[str, ...] | None = None  # those with suggestions; None: those that the model knows

    # Code has about 3.5 bytes a token, and the server cuts what does not fit. A quarter of the context is for the
    # suffix, and a quarter for other files. The prefix is cut in steps, and half of its bytes still fill the context.

    @property
    def prefix_bytes(self) -> int:
        """The most that is sent of the text before the cursor."""
        return 8 * (self.context or DEFAULT_CONTEXT_TOKENS)

    @property
    def suffix_bytes(self) -> int:
        """The most that is sent of the text after the cursor."""
        return 2 * (self.context or DEFAULT_CONTEXT_TOKENS)

    @property
    def related_bytes(self) -> int:
        """The most that is sent of other files."""
        return 7 * (self.context or DEFAULT_CONTEXT_TOKENS) // 8


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """Settings, and a line for the user about each value that was rejected."""

    settings: Settings
    problems: tuple[str, ...]
    refusal: str | None = None  # why nothing may be sent: what was rejected may have limited that


@dataclass(slots=True)
class SettingsSources:
    """The latest values of each source of settings: any JSON that the editor sent, hence Any.

    A source overrides those above it, but what protects adds up: each pattern of `exclude` counts, and `redactSecrets`
    is false only where no source says true. The settings are computed from all sources each time, so a setting that the
    editor's configuration no longer has returns to that of initializationOptions or to its default.
    """

    initialization_options: Any = None  # our settings, or an object with them under "midtoken"
    pushed: Any = None  # by workspace/didChangeConfiguration: an object with the sections of all servers
    pulled: Any = None  # by workspace/configuration: same form as initialization_options

    def read(self) -> ReadSettings:
        """Returns the settings, and the problems of all sources. Never raises."""
        options, pulled = _find_section(self.initialization_options), _find_section(self.pulled)
        pushed = self.pushed.get(SECTION) if isinstance(self.pushed, Mapping) else None
        sources = (options, pushed, pulled)
        settings, problems, refusals = Settings(), dict[str, None](), list[str]()
        for values in sources:
            read = read_settings(values, dataclasses.replace(settings, exclude=()))
            settings = dataclasses.replace(read.settings, exclude=settings.exclude + read.settings.exclude)
            problems |= dict.fromkeys(read.problems)
            refusals += [read.refusal] if read.refusal is not None else []
        redacts = [values.get("redactSecrets") for values in sources if isinstance(values, Mapping)]
        settings = dataclasses.replace(settings, redact_secrets=True in redacts or False not in redacts)
        return ReadSettings(settings, tuple(problems), next(iter(refusals), None))


def read_settings(values: Any, base: Settings) -> ReadSettings:
    """Returns `base` changed by `values`, an object of settings or null. Never raises.

    A setting whose value is null or rejected keeps its value in `base`. If it limits what is sent, or its name is like
    that of one that does, nothing may be sent. Names that are those of other servers are ignored, since some editors
    send all they have. `values` is any JSON that the editor sent, hence Any.
    """
    if values is None or values == []:  # Lua's empty table arrives as an empty list
        return ReadSettings(base, ())
    if not isinstance(values, Mapping):
        problem = f"settings must be an object of names and values, not {_show(values)}"
        return ReadSettings(base, (problem,), problem)
    fields, problems, refusals = {}, list[str](), list[str]()
    for name, value in values.items():
        if value is None or (name not in _SETTINGS and (isinstance(value, Mapping) or "." in name)):
            continue  # a section of another server or program: no setting is an object, or has a dot in its name
        if name not in _SETTINGS:
            problems.append(f"unknown setting {_show(name)}; known are {', '.join(_SETTINGS)}")
            meant = difflib.get_close_matches(name.replace("_", "").lower(), _LIMITS, 1, 0.7)
            refusals += [f"unknown setting {_show(name)}, which may mean {each}" for each in meant]
            continue
        kind, field = _SETTINGS[name], re.sub("[A-Z]", lambda match: f"_{match[0].lower()}", name)
        if kind.has(value):
            fields[field] = kind.read(value)
        else:
            problem = f"setting {name} must be {kind.text}, not {_show(value)}"
            refusals += [problem] if name in _LIMITS else []
            kept = "nothing is sent" if name in _LIMITS else f"it stays {_show(getattr(base, field))}"
            problems.append(f"{problem}; {kept}")
    return ReadSettings(dataclasses.replace(base, **fields), tuple(problems), next(iter(refusals), None))


def _find_section(values: Any) -> Any:
    return values[SECTION] if isinstance(values, Mapping) and SECTION in values else values


def _show(value: Any) -> str:
    text = repr(str(value)) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."


class _Kind(NamedTuple):
    """The values that a setting can have."""

    text: str  # completes "must be …"
    has: Callable[[Any], bool]  # whether a value is one of them
    read: Callable[[Any], Any]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _between(low: int, high: int) -> _Kind:
    """Lua and JavaScript have one type of number, so 3.0 is a whole number too."""
    text = f"a whole number from {low} to {high}"
    return _Kind(text, lambda value: _is_number(value) and value == value // 1 and low <= value <= high, int)


def _one_of(kind: type[Extent] | type[Healing]) -> _Kind:
    return _Kind(f"one of {', '.join(kind)}", lambda value: value in [*kind], kind)


_SWITCH = _Kind("true or false", lambda value: isinstance(value, bool), bool)
_TEXTS = _Kind(
    "a list of texts", lambda value: isinstance(value, list) and all(isinstance(each, str) for each in value), tuple
)
_TOKENS = _between(MIN_PROMPT_TOKENS, MAX_CONTEXT_TOKENS)
_SETTINGS: Mapping[str, _Kind] = {
    "enabled": _SWITCH,
    "extent": _one_of(Extent),
    "maxTokens": _between(1, MAX_NEW_TOKENS),
    "healing": _one_of(Healing),
    "confidence": _Kind("a number from 0 to 1", lambda value: _is_number(value) and 0 <= value <= 1, float),
    "deadlineMs": _between(1, 3_600_000),
    "context": _Kind(
        f"auto or {_TOKENS.text}",
        lambda value: value == "auto" or _TOKENS.has(value),
        lambda value: None if value == "auto" else int(value),
    ),
    "prefetch": _SWITCH,
    "exclude": _TEXTS,
    "redactSecrets": _SWITCH,
    "model": _Kind("a text", lambda value: isinstance(value, str) and value != "", str),
    "languages": _TEXTS,
}
_LIMITS = {"enabled", "prefetch", "exclude", "redactSecrets", "languages", "context"}
