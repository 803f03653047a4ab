"""What stands on the screen of a real Neovim: ghost text beside other text, other windows, menus and servers."""

from pathlib import Path

import pytest

from tests.support.neovim_editor import PLUGIN, Edit, Editor, run_neovim

pytestmark = pytest.mark.e2e

# As the public API of nvim-cmp and blink.cmp: their events, and what says that the menu is shown.
_FAKE_MENUS = """
local handlers, is_shown = {}, false
local window = { visible = function() return is_shown end }
package.loaded['cmp'] = { event = { on = function(_, name, handler) handlers[name] = handler end },
  visible = function() error('it waits for a search') end }
package.loaded['blink.cmp'] = { is_visible = function() return is_shown and vim.g.fake == 'blink.cmp' end }
function ShowFake(shows)
  is_shown = shows
  if vim.g.fake == 'blink.cmp' then
    vim.api.nvim_exec_autocmds('User', { pattern = 'BlinkCmpMenu' .. (shows and 'Open' or 'Close') })
  else
    handlers[shows and 'menu_opened' or 'menu_closed']({ window = window })
  end
end
"""


def _screen(editor: Editor, ghost: str = "") -> list[str]:
    """Returns the rows of the screen. `ghost`: is drawn first, and nothing happens in between."""
    rows = editor.lua(
        """
        if ... ~= '' then require('midtoken.ghost').draw(0, ..., '') end
        vim.cmd.redraw()
        local rows = {}
        for row = 1, vim.o.lines do
          local cells = {}
          for column = 1, vim.o.columns do table.insert(cells, vim.fn.screenstring(row, column)) end
          table.insert(rows, table.concat(cells))
        end
        return rows
        """,
        ghost,
    )
    return [str(row).rstrip() for row in rows]


def test_ghost_text_goes_on_in_the_next_row_at_the_edge_of_the_window(edit: Edit) -> None:
    editor = edit([""])
    before = "x" * 70
    editor.type(f"i{before} Nod")
    editor.wait_for_ghost("e(value, x)")
    assert _screen(editor)[:2] == [f"{before} Node(valu", "e, x)"]


def test_the_lines_of_a_block_go_on_in_the_next_row_at_the_edge_of_the_window(edit: Edit) -> None:
    editor = edit([""])
    editor.type("iif long")
    editor.wait_for_ghost(":")
    editor.type_and_wait("<Tab>")  # the other lines come after the first
    editor.wait_for(lambda: _screen(editor)[1:3], ["    " + "y" * 76, "y" * 14])


@pytest.mark.parametrize(
    ("options", "before", "text"),
    [
        ("", "ab", "\tx\ty\n\tif a:\n\t\treturn 世界\té\t🙂"),
        ("tabstop=4 list listchars=tab:<->", "\t", "a\tx\n  \tb"),
        ("vartabstop=3,9,5 list listchars=tab:>-", "x", "\t\t\ty\n\t\t\ty"),
        ("list listchars=nbsp:+", "x", "\ty\n\ty"),
        ("linebreak", "x", "\n  " + 6 * "word, another.word "),
        ("linebreak breakindent showbreak=>>", "x", "\n\t" + 6 * "word, another.word "),
        ("breakindent breakindentopt=shift:2,sbr,min:5 showbreak=~", "x", "\n    " + 90 * "y"),
        ("breakindent breakindentopt=min:70", "x", "\n    " + 90 * "y"),
        ("showbreak=>>", "x", "\n" + 39 * "世" + "a世 \ty"),
        ("nowrap", 85 * "x", "yy\n    " + 90 * "y"),
    ],
)
def test_a_block_is_drawn_as_the_buffer_will_draw_it(edit: Edit, options: str, before: str, text: str) -> None:
    editor = edit([before, "last"])
    names = [option.partition("=")[0] for option in options.split()]
    editor.nvim.command(f"setlocal noexpandtab tabstop=8 {options}")
    try:
        editor.type_and_wait("A")
        screens = [_screen(editor)]
        screens.append(_screen(editor, text))
        editor.type_and_wait("<Esc>")
        editor.nvim.current.buffer[:] = [*f"{before}{text}".split("\n"), "last"]
        editor.type_and_wait("ggA")
        screens.append(_screen(editor))
    finally:
        editor.nvim.command(f"set {' '.join(f'{name}&' for name in names)} tabstop&")
    before_it, drawn, inserted = (each[:-2] for each in screens)
    assert drawn == inserted != before_it


@pytest.mark.parametrize(("height", "num_seen"), [(10, 3), (3, 2), (1, 0)])
def test_a_block_at_the_bottom_of_the_window_is_scrolled_into_view_and_nothing_is_accepted_unseen(
    edit: Edit, height: int, num_seen: int
) -> None:
    editor = edit(["x = 1"] * 50)
    editor.nvim.command("belowright new | wincmd p")
    editor.nvim.command(f"resize {height} | setlocal noautoindent indentexpr= noexpandtab softtabstop=0 shiftwidth=8")
    try:
        editor.type("Godef s(a):")
        block = ["    one(a)", "    two(a)", "    three(a)"]
        editor.wait_for_ghost("\n".join(["", *block]))
        assert _screen(editor)[height - 1 - num_seen : height] == ["def s(a):", *block[:num_seen]]
        editor.type_and_wait("<Tab>")
        assert editor.lines[50:] == ["def s(a):" + ("" if num_seen else "\t"), *block[:num_seen]]
        if 0 < num_seen < 3:
            editor.wait_for_ghost("\n".join(["", *block[num_seen:]]))
            editor.type_and_wait("<Tab>")
            assert editor.lines[50:] == ["def s(a):", *block]
    finally:
        editor.type_and_wait("<Esc>")
        editor.nvim.command("only")


@pytest.mark.parametrize("key", ["<Tab>", "<M-w>", "<M-l>"])
def test_no_frame_has_the_text_twice_when_it_is_accepted(edit: Edit, key: str) -> None:
    editor = edit([""])
    editor.type("iNod")
    editor.wait_for_ghost("e(value, x)")
    editor.lua("""
        frames = {}
        local namespace = vim.api.nvim_create_namespace('midtoken')
        vim.api.nvim_set_decoration_provider(vim.api.nvim_create_namespace('frames'), { on_win = function(_, _, buf)
          local drawn = vim.api.nvim_buf_get_lines(buf, 0, 1, true)[1]
          for _, mark in ipairs(vim.api.nvim_buf_get_extmarks(buf, namespace, 0, -1, { details = true })) do
            for _, chunk in ipairs(mark[4].virt_text) do drawn = drawn .. chunk[1] end
          end
          table.insert(frames, drawn)
        end })
    """)
    editor.type_and_wait(key)
    _screen(editor)
    frames = editor.lua("return frames")
    editor.lua("vim.api.nvim_set_decoration_provider(vim.api.nvim_create_namespace('frames'), {})")
    assert set(frames) <= {"Node(value, x)", *(["Node"] if key == "<M-w>" else [])}


def test_an_accepted_block_is_not_hidden_in_a_closed_fold(edit: Edit) -> None:
    editor = edit(["x = 1"])
    editor.nvim.command("setlocal foldmethod=indent foldlevel=0")
    editor.type("odef s(a):")
    editor.wait_for(lambda: (editor.ghost or "").startswith("\n    one(a)"), True)
    editor.type_and_wait("<Tab>")
    assert _screen(editor)[1:5] == ["def s(a):", "    one(a)", "    two(a)", "    three(a)"]
    editor.type_and_wait("<Esc>")
    assert _screen(editor)[1:5] == ["def s(a):", "    one(a)", "    two(a)", "    three(a)"]
    editor.nvim.command("setlocal foldmethod=manual")


@pytest.mark.parametrize("place", ["eol", "inline", "right_align"])
def test_diagnostics_and_hints_stay_beside_the_ghost_text(edit: Edit, place: str) -> None:
    editor = edit([""])
    editor.type("iNod")
    editor.wait_for_ghost("e(value, x)")
    editor.lua(
        """
        local namespace = vim.api.nvim_create_namespace('other')
        vim.api.nvim_buf_set_extmark(0, namespace, 0, 3, { virt_text = { { 'UNDEFINED' } }, virt_text_pos = ... })
        """,
        place,
    )
    row = _screen(editor)[0].replace(" ", "")
    assert row in ("Node(value,x)UNDEFINED", "NodUNDEFINEDe(value,x)")


@pytest.mark.parametrize(("after", "row"), [("", "def m(self): pass"), ("  # note", "def m(self): pass  # note")])
def test_the_row_looks_as_it_will_when_the_suggestion_is_accepted(edit: Edit, after: str, row: str) -> None:
    editor = edit([f"def m(){after}"])
    editor.type("f(asel")
    editor.wait_for_ghost("f): pass")
    assert _screen(editor)[0] == row
    editor.type_and_wait("<Tab>")
    assert editor.lines == [row]


def test_after_a_click_into_another_window_no_ghost_text_stays_behind(edit: Edit) -> None:
    editor = edit(["", ""])
    editor.nvim.command("set mouse=a | vnew")
    editor.nvim.command("wincmd p")
    editor.type("iNod")
    editor.wait_for_ghost("e(value, x)")
    editor.nvim.api.input_mouse("left", "press", "", 0, 0, 2)
    editor.wait_for(lambda: "e(value" in "".join(_screen(editor)), False)
    assert editor.nvim.api.get_mode()["mode"] == "i"
    editor.nvim.api.input_mouse("left", "press", "", 0, 0, 70)
    editor.wait_for_ghost("e(value, x)")
    editor.type_and_wait("<Esc>")
    editor.nvim.command("only")


@pytest.mark.parametrize("name", ["nvim-cmp", "blink.cmp"])
def test_while_the_menu_of_another_plugin_is_open_no_ghost_text_is_shown(edit: Edit, name: str) -> None:
    editor = edit([""])
    editor.nvim.vars["fake"] = name
    editor.lua(_FAKE_MENUS)
    try:
        editor.type("iNod")
        editor.wait_for_ghost("e(value, x)")
        editor.lua("ShowFake(true)")
        editor.wait_for(lambda: editor.ghost, None)
        editor.type_and_wait("<BS>d")
        assert editor.ghost is None
        editor.lua("ShowFake(false)")
        editor.wait_for_ghost("e(value, x)")
    finally:
        editor.lua("package.loaded['cmp'], package.loaded['blink.cmp'] = nil, nil")


def test_ghost_text_of_other_servers_stays_off(edit: Edit) -> None:
    editor = edit([""])
    if not editor.lua("return vim.lsp.inline_completion ~= nil"):
        pytest.skip("this Neovim draws no ghost text by itself")
    start_other = """
        vim.g.num_other = 0
        local function answer(method, _, callback)
          if method == 'textDocument/inlineCompletion' then vim.g.num_other = vim.g.num_other + 1 end
          callback(nil, method == 'initialize' and { capabilities = { inlineCompletionProvider = true } } or {})
          return true, 1
        end
        vim.lsp.start({ name = 'other', cmd = function()
          local nothing = function() return false end
          return { request = answer, notify = nothing, is_closing = nothing, terminate = nothing }
        end })
    """
    editor.lua(start_other)
    editor.type("iNod")
    editor.wait_for_ghost("e(value, x)")
    editor.lua("vim.wait(400)")  # Neovim asks after 200 ms
    assert editor.nvim.vars["num_other"] == 0


def test_neovims_own_ghost_text_is_not_drawn_over_ours(edit: Edit) -> None:
    editor = edit([""])
    if not editor.lua("return vim.lsp.inline_completion ~= nil"):
        pytest.skip("this Neovim draws no ghost text by itself")
    editor.lua("vim.lsp.inline_completion.enable()")
    editor.type("iNod")
    editor.wait_for_ghost("e(value, x)")
    editor.lua("vim.wait(400)")  # Neovim asks after 200 ms
    assert _screen(editor)[0] == "Node(value, x)"
    editor.lua("vim.lsp.inline_completion.enable(false)")


@pytest.mark.parametrize("call", ["setup({ cmd = { 'no-such-midtoken' } })", "setup({ filetypes = 'python' })"])
def test_no_key_must_be_pressed_at_a_start_that_goes_wrong(tmp_path: Path, call: str) -> None:
    settings, file = tmp_path / "init.lua", tmp_path / "file.py"
    file.write_text("x = 1\n")
    settings.write_text(f"vim.opt.runtimepath:append('{PLUGIN}')\nrequire('midtoken').{call}")
    with run_neovim(tmp_path, "-u", str(settings), str(file)) as editor:
        editor.wait_for(lambda: editor.nvim.api.get_mode()["blocking"] or "midtoken: " in editor.messages, True)
        assert not editor.nvim.api.get_mode()["blocking"]
