"""The settings in an editor's configuration, right and wrong ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.protocol.completion import CompletionRequest, Extent, Healing
from lsp_server.settings import Settings, SettingsSources, read_settings

_DEFAULTS = Settings()
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
_NAMES = ["enabled", "extent", "maxTokens", "healing", "deadlineMs", "maxPrefixBytes", "maxSuffixBytes"]
_NAMES += ["maxRelatedBytes", "prefetch", "exclude", "redactSecrets", "model", "languages"]


def test_values_replace_the_base_and_other_settings_stay() -> None:
    base = Settings(max_tokens=7)
    read = read_settings({"extent": "block", "healing": "greedy", "deadlineMs": 500, "enabled": False}, base)
    assert read.settings == Settings(False, Extent.BLOCK, 7, Healing.GREEDY, 500)
    assert read.problems == ()


@pytest.mark.parametrize("values", [None, {}, []])
def test_empty_values_change_nothing(values: object) -> None:
    base = Settings(max_tokens=7)
    read = read_settings(values, base)
    assert (read.settings, read.problems) == (base, ())


def test_a_whole_float_is_accepted_as_an_integer() -> None:
    assert read_settings({"maxTokens": 3.0}, _DEFAULTS).settings.max_tokens == 3


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("maxTokens", "x", "setting maxTokens must be a whole number from 1 to 4096, not 'x'; it stays 64"),
        ("maxTokens", True, "setting maxTokens must be a whole number from 1 to 4096, not True; it stays 64"),
        ("maxTokens", 0, "setting maxTokens must be a whole number from 1 to 4096, not 0; it stays 64"),
        (
            "extent",
            "page",
            "setting extent must be one of single_line, block, unlimited, auto, not 'page'; it stays 'auto'",
        ),
        ("model", "", "setting model must be a text, not ''; it stays None"),
        ("model", ["a"], "setting model must be a text, not ['a']; it stays None"),
        ("extent", [], "setting extent must be one of single_line, block, unlimited, auto, not []; it stays 'auto'"),
    ],
)
def test_a_bad_value_is_reported_and_ignored(name: str, value: object, problem: str) -> None:
    read = read_settings({name: value, "deadlineMs": 9}, _DEFAULTS)
    assert read.problems == (problem,)
    assert read.settings == Settings(deadline_ms=9)


@pytest.mark.parametrize(
    ("values", "refusal"),
    [
        ({"exclude": "secret.py"}, "setting exclude must be a list of texts, not 'secret.py'"),
        ({"exclude": ["a", 7]}, "setting exclude must be a list of texts, not ['a', 7]"),
        ({"redactSecrets": "no"}, "setting redactSecrets must be true or false, not 'no'"),
        ({"enabled": 0}, "setting enabled must be true or false, not 0"),
        ({"maxRelatedBytes": "0"}, "setting maxRelatedBytes must be a whole number from 0 to 65536, not '0'"),
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


def test_an_unknown_name_is_reported_with_the_known_names() -> None:
    assert read_settings({"maxTokenz": 1}, _DEFAULTS).problems == (
        f"unknown setting 'maxTokenz'; known are {', '.join(_NAMES)}",
    )


@given(_JSON | st.dictionaries(st.sampled_from(_NAMES), _JSON | st.integers(0, 5000) | st.floats(0, 5000)))
def test_a_request_can_be_built_from_any_values(values: object) -> None:
    read = read_settings(values, _DEFAULTS)
    settings = read.settings
    CompletionRequest("x", max_tokens=settings.max_tokens, deadline_ms=settings.deadline_ms)
    assert settings.max_prefix_bytes >= 256
    assert settings.max_suffix_bytes >= 0
    assert all("\n" not in problem for problem in read.problems)


@pytest.mark.parametrize(
    "sources",
    [
        SettingsSources(initialization_options={"maxTokens": 3}),
        SettingsSources(initialization_options={"midtoken": {"maxTokens": 3}, "python": {}}),
        SettingsSources(pushed={"midtoken": {"maxTokens": 3}, "python": {}}),
        SettingsSources(pulled={"maxTokens": 3}),
        SettingsSources(pulled={"midtoken": {"maxTokens": 3}, "python": {}}),
    ],
)
def test_each_source_can_set_a_setting(sources: SettingsSources) -> None:
    read = sources.read()
    assert (read.settings, read.problems) == (Settings(max_tokens=3), ())


def test_a_later_source_overrides_an_earlier_one() -> None:
    sources = SettingsSources(
        {"maxTokens": 1, "deadlineMs": 1, "extent": "block"}, {"midtoken": {"maxTokens": 2, "deadlineMs": 2}}
    )
    sources.pulled = {"maxTokens": 3}
    assert sources.read().settings == Settings(extent=Extent.BLOCK, max_tokens=3, deadline_ms=2)


@pytest.mark.parametrize("removed", [None, {}, [], {"maxTokens": None}])
def test_a_setting_removed_from_the_configuration_returns_to_its_default(removed: object) -> None:
    sources = SettingsSources({"maxTokens": 3, "extent": "block"}, pulled={"maxTokens": 3, "deadlineMs": 3})
    assert sources.read().settings == Settings(extent=Extent.BLOCK, max_tokens=3, deadline_ms=3)
    sources.pulled = removed
    assert sources.read().settings == Settings(extent=Extent.BLOCK)


def test_a_setting_removed_from_the_pulled_ones_returns_to_the_pushed_one() -> None:
    sources = SettingsSources(pushed={"midtoken": {"maxTokens": 2}}, pulled={"maxTokens": 3})
    sources.pulled = None
    assert sources.read().settings == Settings(max_tokens=2)


def test_null_is_no_value() -> None:
    base = Settings(max_tokens=7, deadline_ms=7)
    values = dict.fromkeys([*_NAMES, "unknown"])
    read = read_settings(values, base)
    assert (read.settings, read.problems) == (base, ())


def test_the_sections_of_others_are_ignored() -> None:
    others: dict[str, object] = {"python": {"x": {}}, "pylsp": None, "trace": {"server": "off"}, "editor.tabSize": 4}
    read = read_settings(others | {"maxTokens": 3}, _DEFAULTS)
    assert (read.settings, read.problems) == (Settings(max_tokens=3), ())


@pytest.mark.parametrize("pushed", [None, [], "text", 7, {}, {"python": {"x": 1}, "maxTokens": "bad"}])
def test_pushed_settings_without_our_section_are_ignored(pushed: object) -> None:
    read = SettingsSources(pushed=pushed).read()
    assert (read.settings, read.problems) == (_DEFAULTS, ())


def test_our_section_must_be_an_object() -> None:
    problem = "settings must be an object of names and values, not 7"
    assert SettingsSources(pushed={"midtoken": 7}).read().problems == (problem,)


def test_a_bad_value_in_two_sources_is_reported_once() -> None:
    values = {"maxTokenz": 1}
    assert len(SettingsSources(values, {"midtoken": values}, values).read().problems) == 1


@given(_JSON, _JSON | st.dictionaries(st.just("midtoken"), _JSON), _JSON)
def test_any_json_as_a_source_gives_valid_settings(options: object, pushed: object, pulled: object) -> None:
    assert isinstance(SettingsSources(options, pushed, pulled).read().settings, Settings)
