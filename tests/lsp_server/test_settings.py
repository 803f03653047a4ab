"""The settings in an editor's configuration, right and wrong ones."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.protocol.completion import CompletionRequest, Extent, Healing
from lsp_server.settings import Settings, SettingsSources, read_settings

_TOKENS = "setting maxTokens must be a whole number from 1 to 4096, not "
_EXTENT = "setting extent must be one of single_line, block, unlimited, auto, not "
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
_NAMES = ["enabled", "extent", "maxTokens", "healing", "confidence", "deadlineMs", "context"]
_NAMES += ["prefetch", "exclude", "redactSecrets", "model", "languages"]


@pytest.mark.parametrize(
    ("values", "changed", "problem"),
    [
        ({"extent": "block", "deadlineMs": 500}, {"extent": Extent.BLOCK, "deadline_ms": 500}, None),
        ({"healing": "greedy", "enabled": False}, {"healing": Healing.GREEDY, "enabled": False}, None),
        ({"maxTokens": 3.0}, {"max_tokens": 3}, None),
        (None, {}, None),
        ({}, {}, None),
        ([], {}, None),
        (dict.fromkeys([*_NAMES, "unknown"]), {}, None),
        ({"python": {"x": {}}, "pylsp": None, "trace": {"server": "off"}, "editor.tabSize": 4}, {}, None),  # of others
        ({"maxTokens": "x", "deadlineMs": 9}, {"deadline_ms": 9}, f"{_TOKENS}'x'; it stays 7"),
        ({"maxTokens": True}, {}, f"{_TOKENS}True; it stays 7"),
        ({"maxTokens": 0}, {}, f"{_TOKENS}0; it stays 7"),
        ({"extent": "page"}, {}, f"{_EXTENT}'page'; it stays 'auto'"),
        ({"extent": []}, {}, f"{_EXTENT}[]; it stays 'auto'"),
        ({"confidence": 1}, {"confidence": 1.0}, None),
        ({"confidence": 1.5}, {}, "setting confidence must be a number from 0 to 1, not 1.5; it stays 0.55"),
        ({"context": 4096.0}, {"context": 4096}, None),
        ({"context": "auto"}, {}, None),
        ({"model": ""}, {}, "setting model must be a text, not ''; it stays None"),
        ({"model": ["a"]}, {}, "setting model must be a text, not ['a']; it stays None"),
        ({"maxTokenz": 1}, {}, f"unknown setting 'maxTokenz'; known are {', '.join(_NAMES)}"),
    ],
)
def test_right_values_replace_the_base_and_wrong_ones_are_reported(
    values: object, changed: dict[str, Any], problem: str | None
) -> None:
    base = Settings(max_tokens=7)
    read = read_settings(values, base)
    assert (read.settings, read.problems) == (replace(base, **changed), (problem,) if problem else ())


@pytest.mark.parametrize(
    ("values", "refusal"),
    [
        ({"exclude": "secret.py"}, "setting exclude must be a list of texts, not 'secret.py'"),
        ({"exclude": ["a", 7]}, "setting exclude must be a list of texts, not ['a', 7]"),
        ({"redactSecrets": "no"}, "setting redactSecrets must be true or false, not 'no'"),
        ({"enabled": 0}, "setting enabled must be true or false, not 0"),
        ({"context": "all"}, "setting context must be auto or a whole number from 16 to 1048576, not 'all'"),
        ({"context": 15}, "setting context must be auto or a whole number from 16 to 1048576, not 15"),
        ({"languages": "python"}, "setting languages must be a list of texts, not 'python'"),
        ({"exlude": ["a"]}, "unknown setting 'exlude', which may mean exclude"),
        ({"redact_secrets": True}, "unknown setting 'redact_secrets', which may mean redactSecrets"),
        (["exclude"], "settings must be an object of names and values, not ['exclude']"),
        ({"maxTokens": "x", "maxTokenz": 1}, None),  # nothing that protects
    ],
)
def test_a_wrong_value_of_what_limits_the_text_that_is_sent_lets_nothing_be_sent(
    values: object, refusal: str | None
) -> None:
    for sources in (
        SettingsSources(values),
        SettingsSources(pushed={"midtoken": values}),
        SettingsSources(pulled=values),
    ):
        read = sources.read()
        assert read.refusal == refusal
        assert len(read.problems) > 0


def test_a_right_value_elsewhere_does_not_stand_for_a_wrong_one() -> None:
    read = SettingsSources({"exclude": "secret.py"}, pulled={"exclude": ["a"]}).read()
    assert (read.refusal, read.settings.exclude) == ("setting exclude must be a list of texts, not 'secret.py'", ("a",))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([["a"], ["b"], ["c"]], ("a", "b", "c")),
        ([["a"], [], []], ("a",)),
        ([None, ["b"], []], ("b",)),
        ([None, None, None], ()),
    ],
)
def test_the_patterns_of_all_sources_count(values: list[list[str] | None], expected: tuple[str, ...]) -> None:
    options, pushed, pulled = ({"exclude": value} for value in values)
    assert SettingsSources(options, {"midtoken": pushed}, pulled).read().settings.exclude == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([None, None, None], True),
        ([False, None, None], False),
        ([None, None, False], False),
        ([True, None, False], True),
        ([False, True, False], True),
    ],
)
def test_secrets_are_sent_only_where_no_source_forbids_it(values: list[bool | None], expected: bool) -> None:
    options, pushed, pulled = ({"redactSecrets": value} for value in values)
    assert SettingsSources(options, {"midtoken": pushed}, pulled).read().settings.redact_secrets is expected


_VALUES = _JSON | st.dictionaries(st.sampled_from(_NAMES), _JSON | st.integers(0, 5000) | st.floats(0, 5000))


@given(_VALUES, _JSON | st.dictionaries(st.just("midtoken"), _VALUES), _VALUES)
def test_a_request_can_be_built_from_any_values(options: object, pushed: object, pulled: object) -> None:
    read = SettingsSources(options, pushed, pulled).read()
    settings = read.settings
    CompletionRequest("x", max_tokens=settings.max_tokens, deadline_ms=settings.deadline_ms)
    assert settings.prefix_bytes >= 8 * 16
    assert settings.suffix_bytes >= 0
    assert all("\n" not in problem for problem in read.problems)


_THREE: dict[str, object] = {"maxTokens": 3}
_SECTION = {"midtoken": _THREE, "python": {}}
_FIRST = {"maxTokens": 1, "deadlineMs": 1, "extent": "block"}


@pytest.mark.parametrize(
    ("sources", "settings"),
    [
        (SettingsSources(initialization_options=_THREE), Settings(max_tokens=3)),
        (SettingsSources(initialization_options=_SECTION), Settings(max_tokens=3)),
        (SettingsSources(pushed=_SECTION), Settings(max_tokens=3)),
        (SettingsSources(pulled=_THREE), Settings(max_tokens=3)),
        (SettingsSources(pulled=_SECTION), Settings(max_tokens=3)),
        # A later source overrides an earlier one.
        (
            SettingsSources(_FIRST, {"midtoken": {"maxTokens": 2, "deadlineMs": 2}}, _THREE),
            Settings(extent=Extent.BLOCK, max_tokens=3, deadline_ms=2),
        ),
        # What is pushed without our section is not for us.
        (SettingsSources(pushed=[]), Settings()),
        (SettingsSources(pushed="text"), Settings()),
        (SettingsSources(pushed=7), Settings()),
        (SettingsSources(pushed={"python": {"x": 1}, "maxTokens": "bad"}), Settings()),
    ],
)
def test_each_source_can_set_a_setting(sources: SettingsSources, settings: Settings) -> None:
    read = sources.read()
    assert (read.settings, read.problems) == (settings, ())


@pytest.mark.parametrize("removed", [None, {}, [], {"maxTokens": None}])
def test_a_setting_removed_from_the_pulled_ones_returns_to_the_pushed_one_or_the_first(removed: object) -> None:
    pushed = {"midtoken": {"deadlineMs": 2}}
    sources = SettingsSources({"maxTokens": 3, "extent": "block"}, pushed, {"maxTokens": 4, "deadlineMs": 3})
    assert sources.read().settings == Settings(extent=Extent.BLOCK, max_tokens=4, deadline_ms=3)
    sources.pulled = removed
    assert sources.read().settings == Settings(extent=Extent.BLOCK, max_tokens=3, deadline_ms=2)


def test_what_is_wrong_is_reported_once() -> None:
    values = {"maxTokenz": 1}
    assert len(SettingsSources(values, {"midtoken": values}, values).read().problems) == 1
    problem = "settings must be an object of names and values, not 7"
    assert SettingsSources(pushed={"midtoken": 7}).read().problems == (problem,)
