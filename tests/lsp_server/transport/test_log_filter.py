"""What is left of pygls's log."""

import logging
from collections.abc import Iterator

import pytest

from lsp_server.transport.log_filter import keep_text_out_of_logs

_LOGGERS = ("pygls.protocol.json_rpc", "pygls.protocol.language_server", "pygls.server")


@pytest.fixture
def filtered() -> Iterator[None]:
    filters = {name: list(logging.getLogger(name).filters) for name in _LOGGERS}
    level = logging.getLogger("pygls").level
    keep_text_out_of_logs()
    yield
    logging.getLogger("pygls").setLevel(level)
    for name in _LOGGERS:
        logging.getLogger(name).filters[:] = filters[name]


@pytest.mark.usefixtures("filtered")
@pytest.mark.parametrize("name", _LOGGERS)
def test_a_log_line_has_the_method_and_the_kind_of_error_and_no_text(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    logging.getLogger(name).info("body %s", "secret")
    try:
        raise ValueError("secret")
    except ValueError:
        logging.getLogger(name).exception("failed: %r with %s", "textDocument/didChange", {"text": "secret"})
    logging.getLogger(name).warning("no arguments: 100 %")
    assert [record.getMessage() for record in caplog.records] == [
        "midtoken: failed: textDocument/didChange with … (ValueError)",
        "midtoken: no arguments: 100 %",
    ]
    assert "secret" not in caplog.text
