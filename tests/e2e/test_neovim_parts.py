"""Accepting a part of a suggestion in Neovim, choosing among several, dismissing, undoing."""

import sys
import time
from collections.abc import Callable

import pytest

from tests.support.lsp_editor import Script, WriteScript
from tests.support.neovim_editor import NODE, Editor, OpenEditor

pytestmark = pytest.mark.e2e

_CHOICES = (sys.executable, "-m", "tests.support.candidates_server", "(one)", "(two)", "[three]")


def _count_lsp_requests(editor: Editor) -> Callable[[], int]:
    """Returns a function that says how many requests have been sent to the language server since this call."""
    editor.lua("""
        vim.g.num_requests = 0
        vim.api.nvim_create_autocmd('LspRequest', { callback = function(event)
          if event.data.request.type == 'pending' then vim.g.num_requests = vim.g.num_requests + 1 end
        end })
    """)
    return lambda: int(editor.nvim.vars["num_requests"])


def _type_until_all_is_shown(editor: Editor, script: Script, first: str, second: str, ghost: str) -> None:
    """A block is shown in two steps: its first lines while it is generated, and all of it after the next key."""
    editor.type(first)
    editor.wait_for(lambda: script.count("finished"), 1)
    editor.wait_for(lambda: bool(editor.ghost), True)
    editor.type(second)
    editor.wait_for_ghost(ghost)


def test_a_part_is_inserted_and_the_rest_stays_without_a_new_generation(
    open_editor: OpenEditor, write_script: WriteScript
) -> None:
    script = write_script({"ends_with": "Nod", "texts": ["e(first_value, second)"]})
    editor = open_editor(script.command, NODE)
    editor.type("Goreturn Nod")
    editor.wait_for_ghost("e(first_value, second)")
    count_requests = _count_lsp_requests(editor)
    for rest in ("(first_value, second)", "first_value, second)", ", second)", " second)", ")"):
        num_before = count_requests()
        editor.type_and_wait("<M-w>")
        assert editor.ghost == rest  # at once
        while count_requests() == num_before:
            time.sleep(0.02)
        time.sleep(0.1)  # the answer takes a few milliseconds
        assert editor.ghost == rest
    assert script.count("started") == 1
    editor.type_and_wait("<M-w>")
    assert (editor.lines[-1], editor.ghost) == ("    return Node(first_value, second)", None)


def test_a_word_takes_the_line_end_and_the_indentation_before_it(
    open_editor: OpenEditor, write_script: WriteScript
) -> None:
    editor = open_editor(write_script({"ends_with": "if x:", "texts": ["\n\n    naïve_ж变数"]}).command, [""])
    editor.type("iif x:")
    editor.wait_for_ghost("\n\n    naïve_ж变数")
    editor.type_and_wait("<M-w>")
    assert (editor.lines, editor.ghost) == (["if x:", "", "    naïve_ж"], "变数")


def test_a_word_ends_at_the_line_end(open_editor: OpenEditor, write_script: WriteScript) -> None:
    script = write_script({"ends_with": "if ", "texts": ["x:\n\n    y"]})
    editor = open_editor(script.command, [""])
    _type_until_all_is_shown(editor, script, "iif ", "x", ":\n\n    y")
    editor.type_and_wait("<M-w>")
    assert (editor.lines, editor.ghost) == (["if x:"], "\n\n    y")


def test_lines_are_accepted_one_by_one_with_one_generation(open_editor: OpenEditor, write_script: WriteScript) -> None:
    script = write_script({"ends_with": "if ", "texts": ["x:\n    a = 1\n    b = 2"]})
    editor = open_editor(script.command, [""])
    _type_until_all_is_shown(editor, script, "iif ", "x", ":\n    a = 1\n    b = 2")
    for lines, rest in [(["if x:"], "\n    a = 1\n    b = 2"), (["if x:", "    a = 1"], "\n    b = 2")]:
        editor.type_and_wait("<M-l>")
        assert (editor.lines, editor.ghost) == (lines, rest)
        time.sleep(0.3)  # Neovim asks again 200 ms later
        assert (editor.ghost, script.count("started")) == (rest, 1)
    editor.type_and_wait("<M-l>")
    assert (editor.lines, editor.ghost) == (["if x:", "    a = 1", "    b = 2"], None)


def test_a_closing_bracket_is_replaced_when_the_part_that_repeats_it_is_accepted(
    open_editor: OpenEditor, write_script: WriteScript
) -> None:
    editor = open_editor(
        write_script({"ends_with": "def f(", "texts": ["self):\n", "    pass"], "delay_s": 0.5}).command, ["def f)"]
    )
    editor.type("f)i(")
    editor.wait_for_ghost("self):")
    editor.type_and_wait("<M-w>")
    assert (editor.lines, editor.ghost) == (["def f(self)"], "):")
    editor.type_and_wait("<M-w>")
    assert editor.lines == ["def f(self):"]


def test_an_undo_takes_back_the_accepted_text_alone(open_editor: OpenEditor, write_script: WriteScript) -> None:
    editor = open_editor(write_script({"ends_with": "Nod", "texts": ["e(value)"]}).command, [""])
    editor.type("iNod")
    editor.wait_for_ghost("e(value)")
    editor.type_and_wait("<Tab>.x<Esc>")
    undone = []
    for _ in range(3):
        editor.type_and_wait("u")
        undone.append(editor.lines[0])
    assert undone == ["Node(value)", "Nod", ""]


def test_next_and_previous_show_the_other_suggestions_for_the_place(open_editor: OpenEditor) -> None:
    editor = open_editor(_CHOICES, ["f"])
    editor.type("A")
    editor.wait_for_ghost("(one)")
    shown = []
    for key in ("<M-n>", "<M-n>", "<M-n>", "<M-p>", "<M-p>"):
        editor.type_and_wait(key)
        shown.append(editor.ghost)
    assert shown == ["(two)", "[three]", "(one)", "[three]", "(two)"]
    editor.type_and_wait("<Tab>")
    assert editor.lines == ["f(two)"]


def test_only_suggestions_that_agree_with_the_typed_text_are_chosen_from(open_editor: OpenEditor) -> None:
    editor = open_editor(_CHOICES, ["f"])
    editor.type("A")
    editor.wait_for_ghost("(one)")
    editor.lua("vim.defer_fn = function() end")  # Neovim asks no more
    editor.type_and_wait("(")
    shown = []
    for _ in range(3):
        editor.type_and_wait("<M-n>")
        shown.append(editor.ghost)
    assert shown == ["two)", "one)", "two)"]


def test_after_dismissing_nothing_is_offered_until_the_text_changes(
    open_editor: OpenEditor, write_script: WriteScript
) -> None:
    editor = open_editor(write_script({"ends_with": "Nod", "texts": ["e(value)"]}).command, [""])
    editor.type("iNod")
    editor.wait_for_ghost("e(value)")
    count_requests = _count_lsp_requests(editor)
    editor.type_and_wait("<M-d>")
    assert editor.ghost is None
    editor.type_and_wait("<Left><Right>")
    time.sleep(0.3)  # Neovim asks 200 ms after a move
    assert (editor.ghost, count_requests()) == (None, 0)
    editor.type("e")
    editor.wait_for_ghost("(value)")
