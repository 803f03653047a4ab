"""What the user sees in an editor with a completion menu and no ghost text, such as Helix."""

import pytest
from lsprotocol.types import Position, Range, TextEdit

from tests.support.lsp_editor import StartEditor, WriteScript, build_capabilities

pytestmark = pytest.mark.e2e

_MENU_ONLY = build_capabilities("utf-8", draws_ghost_text=False)


async def test_the_suggestion_is_in_the_menu(start_editor: StartEditor, write_script: WriteScript) -> None:
    script = write_script({"ends_with": "return Nod", "texts": ["e(1)"]})
    editor = await start_editor(script, _MENU_ONLY)
    editor.open("return Nod")
    menu = await editor.menu(0, 10)
    (item,) = menu.items
    assert menu.is_incomplete
    assert (item.label, item.filter_text) == ("Node(1)", "Node(1)")
    assert item.text_edit == TextEdit(Range(Position(0, 7), Position(0, 10)), "Node(1)")
