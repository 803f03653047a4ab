"""What a person may write into their editor's configuration."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.protocol.completion import Extent, Healing
from lsp_server.settings import Settings, read_settings

_DEFAULTS = Settings()
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
_NAMES = ["enabled", "extent", "maxTokens", "healing", "deadlineMs", "maxPrefixBytes", "maxSuffixBytes"]


def test_values_replace_the_base_and_the_rest_stays() -> None:
    base = Settings(max_tokens=7)
    read = read_settings({"extent": "block", "healing": "greedy", "deadlineMs": 500, "enabled": False}, base)
    assert read.settings == Settings(False, Extent.BLOCK, 7, Healing.GREEDY, 500)
    assert read.problems == ()


@pytest.mark.parametrize("values", [None, {}, [], {"midtoken": []}, {"midtoken": None}, {"midtoken": {}}])
def test_nothing_set_changes_nothing(values: object) -> None:
    assert read_settings(values, _DEFAULTS).settings == _DEFAULTS


def test_settings_may_stand_in_their_section() -> None:
    assert read_settings({"midtoken": {"maxTokens": 3}}, _DEFAULTS).settings.max_tokens == 3


def test_a_whole_float_is_an_integer() -> None:
    assert read_settings({"maxTokens": 3.0}, _DEFAULTS).settings.max_tokens == 3


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("maxTokens", "x", "setting maxTokens must be a whole number from 1 to 4096, not 'x'; it stays 64"),
        ("maxTokens", True, "setting maxTokens must be a whole number from 1 to 4096, not True; it stays 64"),
        ("maxTokens", 0, "setting maxTokens must be a whole number from 1 to 4096, not 0; it stays 64"),
        ("enabled", 1, "setting enabled must be true or false, not 1; it stays True"),
        ("extent", "page", "setting extent must be one of single_line, block, auto, not 'page'; it stays 'auto'"),
        ("extent", [], "setting extent must be one of single_line, block, auto, not []; it stays 'auto'"),
    ],
)
def test_a_bad_value_is_told_and_left_out(name: str, value: object, problem: str) -> None:
    read = read_settings({name: value, "deadlineMs": 9}, _DEFAULTS)
    assert read.problems == (problem,)
    assert read.settings == Settings(deadline_ms=9)


def test_an_unknown_name_is_told_with_the_known_ones() -> None:
    assert read_settings({"maxTokenz": 1}, _DEFAULTS).problems == (
        f"unknown setting 'maxTokenz'; known are {', '.join(_NAMES)}",
    )


@given(_JSON | st.dictionaries(st.sampled_from(_NAMES), _JSON))
def test_no_value_is_too_strange(values: object) -> None:
    read = read_settings(values, _DEFAULTS)
    assert isinstance(read.settings, Settings)
    assert all("\n" not in problem for problem in read.problems)
