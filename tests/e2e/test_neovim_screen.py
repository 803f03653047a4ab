"""What stands on the screen of a real Neovim: ghost text beside other text, other windows, menus and servers."""

import pytest

from tests.support.neovim_editor import Edit, Editor

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
