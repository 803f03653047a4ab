"""What the user sees at the cursor in an editor with inline completion."""

import pytest
from lsprotocol.types import Position, Range

from tests.support.lsp_editor import StartEditor, WriteScript, wait_for

pytestmark = pytest.mark.e2e


async def test_the_rest_of_the_word_is_suggested_in_the_middle_of_a_token(
    start_editor: StartEditor, write_script: WriteScript
) -> None:
    editor = await start_editor(write_script({"ends_with": "return Nod", "texts": ["e"]}))
    editor.open("class Node:\n    pass\n\nreturn ")
    editor.edit(3, 7, "Nod")
    item = await editor.ghost(3, 10)
    assert (item.insert_text, item.range) == ("Node", Range(Position(3, 7), Position(3, 10)))


async def test_typing_the_suggested_text_starts_no_new_generation(
    start_editor: StartEditor, write_script: WriteScript
) -> None:
    script = write_script({"ends_with": "ret", "texts": ["urn value"]})
    editor = await start_editor(script)
    editor.open("ret")
    assert (await editor.ghost(0, 3)).insert_text == "return value"
    for column, letter in enumerate("urn", 3):
        editor.edit(0, column, letter)
        assert (await editor.ghost(0, column + 1)).insert_text == "return value"
    assert script.count("started") == 1


async def test_the_first_line_is_shown_before_the_block_is_complete_and_the_rest_after_acceptance(
    start_editor: StartEditor, write_script: WriteScript
) -> None:
    script = write_script({"ends_with": "x", "texts": [" = 1\n", "y = 2"], "delay_s": 0.3})
    editor = await start_editor(script)
    editor.open("x")
    assert (await editor.ghost(0, 1)).insert_text == "x = 1"
    assert script.count("finished") == 0
    editor.edit(0, 1, " = 1")
    await wait_for(lambda: script.count("finished") == 1)
    assert (await editor.ghost(0, 5)).insert_text == "1\ny = 2"
    assert script.count("started") == 1


async def test_further_typing_supersedes_the_request_and_cancels_its_generation(
    start_editor: StartEditor, write_script: WriteScript
) -> None:
    slow = {"ends_with": "a", "texts": ["never"], "delay_s": 60}
    script = write_script(slow, {"ends_with": "ab", "texts": ["c"]})
    editor = await start_editor(script)
    editor.open("a")
    older = editor.ask(0, 1)
    await wait_for(lambda: script.count("started") == 1)
    editor.edit(0, 1, "b")
    assert (await editor.ghost(0, 2)).insert_text == "abc"
    assert await older is None  # null, so the editor keeps its ghost text
    assert script.count("cancelled") == 1
