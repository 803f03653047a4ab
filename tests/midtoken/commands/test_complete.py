"""The request of `midtoken complete`. tests/e2e/test_commands.py uses a real server."""

import argparse
from pathlib import Path

import pytest

from inference.errors import InvalidRequestError
from inference.protocol.completion import CompletionRequest, Extent, Healing
from midtoken.arguments.cursor import Cursor
from midtoken.commands.complete import add_arguments, build_request

_CURSOR = Cursor(Path("app.py"), "return Nod", "\nrest")


def _parse(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(["app.py:1", *arguments])


def test_without_options_the_request_has_the_text_around_the_cursor() -> None:
    request = build_request(_parse(), _CURSOR)
    assert request == CompletionRequest("return Nod", suffix="\nrest", max_tokens=64)


def test_each_option_is_in_the_request() -> None:
    options = _parse("--ignore-suffix", "--max-tokens=3", "--healing=greedy", "--extent=single_line")
    request = build_request(options, _CURSOR)
    wanted = CompletionRequest("return Nod", max_tokens=3, healing=Healing.GREEDY, extent=Extent.SINGLE_LINE)
    assert request == wanted


def test_a_number_out_of_range_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="max_tokens"):
        build_request(_parse("--max-tokens=0"), _CURSOR)


@pytest.mark.parametrize("option", ["--healing=magic", "--extent=page", "--max-tokens=many"])
def test_an_unknown_value_is_named_in_the_error(capsys: pytest.CaptureFixture[str], option: str) -> None:
    with pytest.raises(SystemExit):
        _parse(option)
    name, _, value = option.partition("=")
    error = capsys.readouterr().err.splitlines()[-1]
    assert f"argument {name}: invalid" in error
    assert repr(value) in error


def test_the_error_for_an_unknown_strategy_lists_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        _parse("--healing=magic")
    message = capsys.readouterr().err
    assert all(str(healing) in message.rpartition("choose from")[2] for healing in Healing)
