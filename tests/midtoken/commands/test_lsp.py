"""The command that editors start, as its process."""

import sys

from pygls.lsp.client import LanguageClient

from tests.support.lsp_editor import LspEditor, build_capabilities, wait_for


async def test_the_setting_model_is_refused_by_its_name_where_a_running_server_has_one(unused_tcp_port: int) -> None:
    editor = LspEditor(LanguageClient("editor", "1"))
    await editor.client.start_io(sys.executable, "-m", "midtoken", "lsp", "--server", f"127.0.0.1:{unused_tcp_port}")
    editor.settings = {"model": "owner/name"}
    await editor.start(build_capabilities())
    editor.open("x")
    await wait_for(lambda: editor.shown != [])
    assert editor.shown[0].startswith("midtoken: the setting model has no effect with --server, because a running")
    editor.settings = {}
    editor.push_settings(None)
    await wait_for(lambda: len(editor.shown) == 2)
    assert str(unused_tcp_port) in editor.shown[1]
    await editor.leave()
    await editor.client.stop()  # type: ignore[no-untyped-call]  # pygls
