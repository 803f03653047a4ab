"""The plugin's keys in Neovim, above all when no suggestion is shown: then they do what they did before."""

import time

import pytest

from tests.support.lsp_editor import Script, WriteScript
from tests.support.neovim_editor import Edit, OpenEditor

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize(
    "mapping",
    [
        "inoremap <Tab> was",
        "imap <Tab> <Plug>(was)",
        "inoremap <expr> <Tab> pumvisible() ? '<C-n>' : 'was'",
        "lua vim.keymap.set('i', '<Tab>', function() return 'was' end, { expr = true })",
        "lua vim.keymap.set('i', '<Tab>', function() vim.api.nvim_put({ 'was' }, 'c', false, true) end)",
        "inoremap <buffer> <Tab> was",
    ],
)
@pytest.mark.parametrize("is_first", [True, False])
def test_without_a_suggestion_the_users_own_mapping_of_the_key_is_used(
    edit: Edit, mapping: str, is_first: bool
) -> None:
    if "<buffer>" in mapping and not is_first:
        pytest.skip("a later mapping of the buffer replaces the plugin's, as everywhere in Neovim")
    editor = edit([""])
    editor.nvim.command("inoremap <Plug>(was) was")
    if is_first:
        editor.nvim.command("iunmap <buffer> <Tab>")
    editor.nvim.command(mapping)
    if is_first:
        editor.lua("require('midtoken.keys').bind(0, { accept = '<Tab>' })")
    editor.type_and_wait("ix<Tab>y")
    assert editor.lines == ["xwasy"]
    editor.type("<CR>Nod")
    editor.wait_for_ghost("e(value, x)")
    editor.type_and_wait("<Tab>z")
    assert editor.lines == ["xwasy", "Node(value, x)z"]


@pytest.mark.parametrize(
    ("keys", "accept", "rest", "lines"),
    [
        ("ANod", "<Tab>", ".y<Esc>j.", ["Node(value, x).y", "Node(value, x).y"]),
        ("ANod", "<M-w>", ".y<Esc>j.", ["Node.y", "Node.y"]),
        ("3ANod", "<Tab>", ",<Esc>", ["Node(value, x),Node(value, x),Node(value, x),", ""]),
        ("ccdef m()<Left>sel", "<Tab>", "<Esc>", ["def m(self): pass", ""]),
    ],
)
def test_a_count_and_the_dot_command_repeat_what_was_accepted(
    edit: Edit, keys: str, accept: str, rest: str, lines: list[str]
) -> None:
    editor = edit(["", ""])
    editor.type_and_wait("gg" + keys)
    editor.wait_for(lambda: editor.ghost is not None, True)
    editor.type_and_wait(accept + rest)
    assert editor.lines == lines


def test_while_the_completion_menu_is_open_the_keys_are_its_own(edit: Edit) -> None:
    editor = edit(["Nodding", "Nodular", ""])
    editor.nvim.command("inoremap <expr> <Tab> pumvisible() ? '<C-n>' : '<Tab>'")
    editor.nvim.command("setlocal completeopt=menuone,noselect")
    editor.type("GANod")
    editor.wait_for_ghost("e(value, x)")
    editor.type_and_wait("<C-x><C-n>")
    assert editor.lua("return vim.fn.pumvisible()") == 1
    editor.wait_for(lambda: editor.ghost, None)
    editor.type_and_wait("<Tab><Tab>")
    assert editor.lines[-1] == "Nodular"
    editor.type_and_wait("<C-e>")
    editor.wait_for_ghost("e(value, x)")


def test_in_a_placeholder_of_a_snippet_no_suggestion_is_shown_and_the_key_jumps(edit: Edit) -> None:
    editor = edit([""])
    editor.nvim.command("inoremap <expr> <Tab> v:lua.vim.snippet.active() ? '<Cmd>lua vim.snippet.jump(1)<CR>' : 'no'")
    editor.type_and_wait("iNod")
    editor.wait_for_ghost("e(value, x)")
    editor.lua("vim.snippet.expand('(${1:one}, ${2:two})$0')")
    editor.wait_for(lambda: editor.nvim.api.get_mode()["mode"], "s")
    editor.type_and_wait("Nod")
    time.sleep(0.3)
    assert editor.ghost is None
    editor.type("<Tab>")
    editor.type_and_wait("x<C-g>u")
    assert editor.lines == ["Nod(Nod, x)"]


def test_keys_can_be_chosen_and_turned_off(open_editor: OpenEditor, write_script: WriteScript) -> None:
    command = write_script({"ends_with": "Nod", "texts": ["e value"]}).command
    editor = open_editor(command, [""], keys={"accept": "<C-y>", "accept_word": False})
    editor.nvim.command("setlocal noexpandtab softtabstop=0")
    mapped = editor.lua("return vim.tbl_map(function(m) return m.lhs end, vim.api.nvim_buf_get_keymap(0, 'i'))")
    assert sorted(mapped) == ["<C-Y>", "<M-a>", "<M-d>", "<M-l>", "<M-n>", "<M-p>"]
    editor.type("iNod")
    editor.wait_for_ghost("e value")
    editor.type_and_wait("<C-y><Tab>.x")  # a text that is typed with the key comes after the accepted text
    assert editor.lines == ["Node value\t.x"]


def test_other_keys_of_a_later_setup_replace_those_before_and_give_back_what_they_did(
    open_editor: OpenEditor, write_script: WriteScript
) -> None:
    command = write_script({"ends_with": "Nod", "texts": ["e"]}).command
    editor = open_editor(command, [""], keys={"accept": "<C-y>"})
    editor.nvim.command("inoremap <buffer> <C-g> was")
    list_mapped = "return vim.tbl_map(function(m) return m.lhs end, vim.api.nvim_buf_get_keymap(0, 'i'))"
    alt = ["<M-a>", "<M-d>", "<M-l>", "<M-n>", "<M-p>", "<M-w>"]
    for keys, mapped in [
        ({"accept": "<C-g>"}, ["<C-G>", *alt]),
        ({"accept": "<C-l>"}, ["<C-G>", "<C-L>", *alt]),
        (False, ["<C-G>"]),
    ]:
        editor.lua("require('midtoken').setup(...)", {"cmd": command, "keys": keys})
        editor.wait_for(lambda: sorted(editor.lua(list_mapped)), mapped)
    editor.type_and_wait("ix<C-g>y")
    assert editor.lines == ["xwasy"]


def test_an_unknown_key_name_is_an_error(edit: Edit) -> None:
    with pytest.raises(Exception, match='unknown key "acept"; known are accept, accept_line, accept_word, ask'):
        edit([]).lua("require('midtoken.options').set({ keys = { acept = '<Tab>' } })")


def test_suggestions_are_switched_in_one_buffer_and_everywhere(edit: Edit, script: Script) -> None:
    editor = edit([""])
    off_here, off_everywhere = "off (disabled in this buffer)", "off (disabled everywhere)"
    for command, wanted in [
        ("MidtokenToggle", off_here),
        ("MidtokenToggle", "ready"),
        ("MidtokenToggle!", off_everywhere),
        ("MidtokenToggle", "ready"),
        ("MidtokenToggle!", "ready"),
        ("MidtokenToggle!", off_everywhere),
        ("MidtokenToggle!", "ready"),
        ("MidtokenToggle", off_here),
    ]:
        editor.nvim.command(command)
        editor.wait_for(lambda: editor.status, f"midtoken: {wanted}")
    time.sleep(0.4)  # a prefetch may have begun while suggestions were on
    num_started = script.count("started")
    editor.type("iNod")
    time.sleep(0.4)
    assert (editor.ghost, script.count("started")) == (None, num_started)
    editor.nvim.command("MidtokenToggle")
    editor.type("<BS>d")
    editor.wait_for_ghost("e(value, x)")
    editor.nvim.command("MidtokenToggle")
    assert editor.ghost is None


@pytest.mark.parametrize(
    ("off", "on"),
    [
        ("MidtokenToggle", "MidtokenToggle"),
        ("lua vim.g.midtoken_enabled = false", "lua vim.b.midtoken_enabled = true"),
        ("lua require('midtoken').setup(OPTIONS) vim.b.midtoken_enabled = false", "MidtokenToggle"),  # not yet started
    ],
)
def test_where_suggestions_are_off_no_text_is_sent(edit: Edit, script: Script, off: str, on: str) -> None:
    editor = edit(["", "secret"])
    editor.lua("OPTIONS = ...", {"cmd": script.command})
    editor.nvim.command(off)
    list_clients = "return vim.tbl_map(function(each) return each.initialized end, vim.lsp.get_clients(...))"
    editor.wait_for(lambda: editor.lua(list_clients, {"name": "midtoken", "_uninitialized": True}), [True])
    time.sleep(1.2)  # a prefetch may have begun while suggestions were on
    script.log.unlink(missing_ok=True)
    editor.type_and_wait("iNo<Esc>jA text<Esc>k")
    time.sleep(1.2)
    assert not script.events
    editor.nvim.command(on)
    editor.type("Ad")
    editor.wait_for_ghost("e(value, x)")
    assert script.events[-1]["suffix"] == "\nsecret text\n"
