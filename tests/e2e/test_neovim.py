"""What the user sees in a real Neovim 0.12 with the plugin in editors/neovim: suggestions, and accepting them."""

import sys
import time

import pytest

from tests.support.lsp_editor import WriteScript
from tests.support.neovim_editor import NODE, OpenEditor
from tests.support.servers import RunningServer

pytestmark = pytest.mark.e2e


def test_the_rest_of_the_word_is_shown_after_the_cursor(open_editor: OpenEditor, write_script: WriteScript) -> None:
    editor = open_editor(write_script({"ends_with": "return Nod", "texts": ["e"]}).command, NODE)
    editor.type("Goreturn Nod")
    editor.wait_for_ghost("e")
    assert editor.ghost_place == (len(NODE), len("    return Nod"))


def test_the_default_model_completes_the_typed_name(open_editor: OpenEditor, any_real_server: RunningServer) -> None:
    command = [sys.executable, "-m", "midtoken", "lsp", "--server", any_real_server.url]
    editor = open_editor(command, NODE)
    editor.type("Goreturn Nod")

    def find_first_letter() -> str:
        if editor.ghost is None:  # the request was made before the language server had connected
            editor.type("<BS>d")
            time.sleep(1)
        return (editor.ghost or "")[:1]

    editor.wait_for(find_first_letter, "e")


def test_tab_accepts_the_suggestion(open_editor: OpenEditor, write_script: WriteScript) -> None:
    editor = open_editor(write_script({"ends_with": "return Nod", "texts": ["e(value)"]}).command, NODE)
    editor.type("Goreturn Nod")
    editor.wait_for_ghost("e(value)")
    editor.type("<Tab>")
    editor.wait_for(lambda: editor.lines[-1], "    return Node(value)")
    editor.type("<Esc>")
    assert editor.nvim.current.window.cursor[1] == len("    return Node(value)") - 1


def test_tab_inserts_a_tab_if_no_suggestion_is_shown(open_editor: OpenEditor, write_script: WriteScript) -> None:
    editor = open_editor(write_script().command, NODE)
    editor.type(":set noexpandtab<CR>Gox<Tab>")
    editor.wait_for(lambda: editor.lines[-1].lstrip(), "x\t")


def test_matching_letters_typed_just_before_tab_are_part_of_the_accepted_text(
    open_editor: OpenEditor, write_script: WriteScript
) -> None:
    editor = open_editor(write_script({"ends_with": "Nod", "texts": ["e(value)"]}).command, NODE)
    editor.type("Goreturn Nod")
    editor.wait_for_ghost("e(value)")
    editor.type("e(<Tab>")  # one batch of keys, so that no request is sent in between
    editor.wait_for(lambda: editor.lines[-1], "    return Node(value)")


def test_after_a_mismatching_letter_tab_inserts_a_tab(open_editor: OpenEditor, write_script: WriteScript) -> None:
    editor = open_editor(write_script({"ends_with": "Nod", "texts": ["e(value)"]}).command, NODE)
    editor.type("Goreturn Nod")
    editor.wait_for_ghost("e(value)")
    editor.nvim.command("setlocal noexpandtab softtabstop=0")
    editor.type_and_wait("x<Tab>y")
    assert editor.lines[-1] == "    return Nodx\ty"


def test_the_ghost_text_shrinks_as_it_is_typed_with_one_generation(
    open_editor: OpenEditor, write_script: WriteScript
) -> None:
    script = write_script({"ends_with": "Nod", "texts": ["e(value)"]})
    editor = open_editor(script.command, NODE)
    editor.type("Goreturn Nod")
    editor.wait_for_ghost("e(value)")
    for letter, ghost in zip("e(v", ("(value)", "value)", "alue)"), strict=True):
        editor.type(letter)
        editor.wait_for_ghost(ghost)
        time.sleep(0.3)  # Neovim asks again 200 ms after the letter
        assert editor.ghost == ghost
    assert [event["prefix"].rpartition(" ")[2] for event in script.events if event["event"] == "started"] == ["Nod"]


def test_inside_brackets_the_text_is_inserted_before_the_closing_bracket(
    open_editor: OpenEditor, write_script: WriteScript
) -> None:
    editor = open_editor(write_script({"ends_with": "print(na", "texts": ["me)"]}).command, ["print()"])
    editor.type("f)ina")
    editor.wait_for_ghost("me")
    editor.type("m<Tab>")
    editor.wait_for(lambda: editor.lines, ["print(name)"])


def test_a_block_replaces_the_closing_bracket(open_editor: OpenEditor, write_script: WriteScript) -> None:
    script = write_script({"ends_with": "def f(", "texts": ["self):\n", "    pass"], "delay_s": 0.5})
    editor = open_editor(script.command, ["def f)"])
    editor.type("f)i(")
    editor.wait_for_ghost("self):")
    editor.type("se<Tab>")
    editor.wait_for(lambda: editor.lines, ["def f(self):"])
    editor.wait_for_ghost("\n    pass")
    assert script.count("started") == 1


def test_after_the_first_line_is_accepted_the_other_lines_are_shown(
    open_editor: OpenEditor, write_script: WriteScript
) -> None:
    script = write_script(
        {"ends_with": "if x:", "texts": ["\n    a = 1\n", "    b = 2\n", "    c = 3"], "delay_s": 0.1}
    )
    editor = open_editor(script.command, [""])
    editor.type("iif x:")
    editor.wait_for_ghost("\n    a = 1")
    editor.type("<Tab>")
    editor.wait_for_ghost("\n    b = 2\n    c = 3")
    editor.type("<Tab>")
    editor.wait_for(lambda: editor.lines, ["if x:", "    a = 1", "    b = 2", "    c = 3"])


def test_the_sent_text_is_the_text_in_the_buffer(open_editor: OpenEditor, write_script: WriteScript) -> None:
    script = write_script({"ends_with": "END", "texts": ["!"]})
    editor = open_editor(script.command, ["one 😀 two", "", "thrée", "four", "\tfive\x0c six"])
    for keys in ("ggdd", "u", "jjyyp", ":%s/o/00/g<CR>", "u", "<C-r>", "ggVGd", "u", "Gdd", "ggJx", ":2,3move 0<CR>"):
        editor.type("<Esc>" + keys)
    editor.type("<Esc>GAEND")
    editor.wait_for_ghost("!")
    started = [event["prefix"] for event in script.events if event["event"] == "started"]
    assert started[-1] == "\n".join(editor.lines)


def test_where_the_cursor_rests_the_text_is_sent_before_a_key(
    open_editor: OpenEditor, write_script: WriteScript
) -> None:
    script = write_script()
    editor = open_editor(script.command, NODE)
    editor.type("gg")
    editor.type("jwl")
    before, after = "class Node:\n    d", "ef __init__(self, value):\n" + "\n".join(NODE[2:]) + "\n"
    editor.wait_for(lambda: script.last_prefetch, (before, after))
    assert script.count("started") == 0


def test_leaving_insert_mode_hides_the_ghost_text_and_cancels_the_generation(
    open_editor: OpenEditor, write_script: WriteScript
) -> None:
    slow = {"ends_with": "Nodx", "texts": ["never"], "delay_s": 60}
    script = write_script({"ends_with": "Nod", "texts": ["e"]}, slow)
    editor = open_editor(script.command, NODE)
    editor.type("Goreturn Nod")
    editor.wait_for_ghost("e")
    editor.type("x")
    editor.wait_for(lambda: script.count("started"), 2)
    editor.type("<Esc>")
    editor.wait_for(lambda: (editor.ghost, script.count("cancelled")), (None, 1))


def test_the_language_server_ends_with_neovim(open_editor: OpenEditor, write_script: WriteScript) -> None:
    script = write_script({"ends_with": "Nod", "texts": ["e"]})
    editor = open_editor(script.command, NODE)
    editor.type("Goreturn Nod")
    editor.wait_for_ghost("e")
    editor.nvim.command("qall!", async_=True)
    editor.wait_for(lambda: script.count("closed"), 1)


@pytest.mark.parametrize(("keys", "line"), [("<C-d>", "  x = Nod\t"), ("<C-u>", "\t"), ("<CR>", "\t")])
def test_tab_does_not_insert_a_suggestion_for_text_that_is_no_longer_before_the_cursor(
    open_editor: OpenEditor, write_script: WriteScript, keys: str, line: str
) -> None:
    editor = open_editor(write_script({"ends_with": "Nod", "texts": ["e(value)"]}).command, ["if x:"])
    editor.nvim.command("setlocal noexpandtab softtabstop=0 shiftwidth=2 indentexpr= noautoindent | set nosmarttab")
    editor.type("o    x = Nod")
    editor.wait_for_ghost("e(value)")
    editor.type_and_wait(keys + "<Tab>")
    assert editor.lines[-1] == line


def test_after_enter_no_suggestion_stays_on_the_line_above(open_editor: OpenEditor, write_script: WriteScript) -> None:
    editor = open_editor(write_script({"ends_with": "Nod", "texts": ["e(value)"]}).command, NODE)
    editor.type("Goreturn Nod")
    editor.wait_for_ghost("e(value)")
    editor.type_and_wait("<CR>")
    assert editor.ghost is None


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ({"exclude": ["a"]}, {"exclude": []}, {"exclude": ["a"]}),
        ({"exclude": ["a"], "maxTokens": 3}, {"redactSecrets": False}, {"exclude": ["a"], "redactSecrets": True}),
        ({"exclude": ["a"], "redactSecrets": False}, {"exclude": ["b"]}, {"exclude": ["a", "b"]}),
        ({"exclude": "a"}, {"exclude": ["b"]}, {"exclude": "a"}),
        ({"redactSecrets": False}, {"redactSecrets": False}, {"redactSecrets": False}),
    ],
)
def test_a_later_setup_takes_no_protection_away(
    first: object, second: object, expected: object, open_editor: OpenEditor, write_script: WriteScript
) -> None:
    editor = open_editor(write_script().command, [])
    editor.lua("package.loaded['midtoken.options'] = nil; require('midtoken.options').set({ settings = ... })", first)
    found = editor.lua("return require('midtoken.options').set({ settings = ... }).settings", second)
    assert found == expected
