"""The changes to pygls's behaviour."""

import logging
from collections.abc import AsyncIterator

import pytest
from lsprotocol import types

from lsp_server.errors import UnknownDocumentError
from lsp_server.pygls_overrides import keep_text_out_of_logs
from tests.support.lsp_editor import URI, build_capabilities, wait_for
from tests.support.lsp_in_process import InProcess, run_in_process


@pytest.fixture
async def both() -> AsyncIterator[InProcess]:
    async with run_in_process() as both:
        yield both


async def wait_for_text(both: InProcess, text: str) -> None:
    await wait_for(lambda: _find_text(both) == text)


def _find_text(both: InProcess) -> str | None:
    try:
        return both.server.documents.get(URI).text
    except UnknownDocumentError:
        return None


async def test_pygls_keeps_no_copy_of_the_text(both: InProcess) -> None:
    await both.start()
    both.editor.open("text")
    await wait_for_text(both, "text")
    both.editor.edit(0, 4, "more")
    await wait_for_text(both, "textmore")
    assert both.server.workspace.text_documents == {}


async def test_an_edit_leaves_no_pending_future(both: InProcess) -> None:
    await both.start(build_capabilities(answers_configuration=False))  # otherwise a request is pending
    both.editor.open("")
    await wait_for_text(both, "")
    before = len(both.server.protocol._request_futures)
    for _ in range(100):
        both.editor.edit(0, 0, "x")
    await wait_for_text(both, "x" * 100)
    assert len(both.server.protocol._request_futures) == before


def test_any_json_is_a_result_of_workspace_configuration() -> None:
    protocol = InProcess().server.protocol
    assert protocol.get_result_type(types.WORKSPACE_CONFIGURATION) is None
    assert protocol.get_result_type(types.WORKSPACE_WORKSPACE_FOLDERS) is not None


def test_pyglss_logs_contain_no_source_text(caplog: pytest.LogCaptureFixture) -> None:
    filters = {name: list(logging.getLogger(name).filters) for name in _LOGGERS}
    level = logging.getLogger("pygls").level
    keep_text_out_of_logs()
    try:
        for name in _LOGGERS:
            logging.getLogger(name).info("body %s", "secret")
            try:
                raise ValueError("secret")
            except ValueError:
                logging.getLogger(name).exception("failed to handle %s", "secret")
    finally:
        logging.getLogger("pygls").setLevel(level)
        for name in _LOGGERS:
            logging.getLogger(name).filters[:] = filters[name]
    assert [record.getMessage() for record in caplog.records] == ["failed to handle %s"] * len(_LOGGERS)
    assert "secret" not in caplog.text


_LOGGERS = ("pygls.protocol.json_rpc", "pygls.protocol.language_server", "pygls.io_")
