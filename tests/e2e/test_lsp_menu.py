"""What a person sees in an editor that has a completion menu and no ghost text, such as Helix."""

from typing import Any

import pytest
from lsprotocol.types import Position, Range

from tests.support.lsp_editor import build_capabilities

pytestmark = pytest.mark.e2e

_MENU_ONLY = build_capabilities("utf-8", draws_ghost_text=False)


async def test_the_suggestion_stands_in_the_menu(start_editor: Any, write_script: Any) -> None:
    script = write_script({"ends_with": "return Nod", "texts": ["e(1)"]})
    editor = await start_editor(script, _MENU_ONLY)
    editor.open("return Nod")
    menu = await editor.menu(0, 10)
    (item,) = menu.items
    assert menu.is_incomplete
    assert (item.label, item.filter_text) == ("Node(1)", "Node(1)")
    assert (item.text_edit.new_text, item.text_edit.range) == ("Node(1)", Range(Position(0, 7), Position(0, 10)))


async def test_an_empty_menu_asks_again_after_the_next_letter(start_editor: Any, write_script: Any) -> None:
    editor = await start_editor(write_script(), _MENU_ONLY)
    editor.open("a")
    menu = await editor.menu(0, 1)
    assert (menu.is_incomplete, list(menu.items)) == (True, [])


async def test_an_editor_with_ghost_text_gets_no_menu_as_well(start_editor: Any, write_script: Any) -> None:
    editor = await start_editor(write_script())
    assert editor.capabilities.completion_provider is None
    assert editor.capabilities.inline_completion_provider is not None
