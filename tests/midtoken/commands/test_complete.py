"""The request of `midtoken complete`. tests/e2e/test_commands.py uses a real server."""

import argparse
import io

import pytest

from inference.errors import InvalidRequestError
from inference.protocol.completion import CompletionRequest, Extent, Healing
from lsp_server.context import Context
from midtoken.commands.complete import add_arguments, build_request, print_dim
from tests.support.options import parse_options

_CURSOR = Context("return Nod", "\nrest")


def _parse(*arguments: str) -> argparse.Namespace:
    return parse_options(add_arguments, "app.py:1", *arguments)


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


@pytest.mark.parametrize(("is_terminal", "shown"), [(True, True), (False, False)])
def test_dim_text_is_written_unchanged_to_a_terminal_only(
    is_terminal: bool, shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: is_terminal)
    monkeypatch.setenv("TERM", "xterm")
    print_dim("[red]    self.x[0]", stream)
    assert ("[red]    self.x[0]" in stream.getvalue()) is shown
    assert not stream.getvalue().endswith("\n")
