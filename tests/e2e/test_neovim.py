"""What the user sees in a real Neovim with the plugin in editors/neovim: suggestions, and accepting them."""

import time
from pathlib import Path

import pytest

from tests.support.lsp_editor import Script, WriteScript, make_script
from tests.support.neovim_editor import NODE, RULES, Edit, Editor, OpenEditor, open_file, run_neovim

pytestmark = pytest.mark.e2e


def test_the_rest_of_the_word_is_shown_after_the_cursor_and_accepted_with_tab(edit: Edit) -> None:
    editor = edit(NODE)
    editor.type("Goreturn Nod")
    editor.wait_for_ghost("e(value, x)")
    assert editor.ghost_place == (len(NODE), len("    return Nod"))
    editor.type("<Tab>")
    editor.wait_for(lambda: editor.lines[-1], "    return Node(value, x)")
    editor.type_and_wait("<Esc>")
    assert editor.nvim.current.window.cursor[1] == len("    return Node(value, x)") - 1
    assert "midtoken" not in editor.messages  # nothing is said if all is well


def test_what_was_accepted_is_undone_at_once_and_what_is_typed_ahead_stays_shown(edit: Edit) -> None:
    editor = edit([""])
    editor.type("iNod")
    editor.wait_for_ghost("e(value, x)")
    for key, rest in (("e", "(value, x)"), ("(", "value, x)"), ("<BS>", "(value, x)")):
        editor.type_and_wait(key)
        editor.wait_for_ghost(rest)
    editor.type_and_wait("<Tab>")
    assert editor.lines == ["Node(value, x)"]
    editor.type_and_wait("<C-o>u")
    assert editor.lines in (["Node"], [""])


def test_a_part_is_inserted_and_the_rest_stays_without_a_new_generation(edit: Edit, script: Script) -> None:
    editor = edit(NODE)
    editor.type("Goreturn Nod")
    editor.wait_for_ghost("e(value, x)")
    num_started = script.count("started")
    for rest in ("(value, x)", "value, x)", ", x)"):
        num_before = _count_lsp_requests(editor)
        editor.type_and_wait("<M-w>")
        assert editor.ghost == rest  # at once
        while _count_lsp_requests(editor) == num_before:
            time.sleep(0.02)
        time.sleep(0.1)  # the answer takes a few milliseconds
        assert editor.ghost == rest
    assert script.count("started") == num_started


def _count_lsp_requests(editor: Editor) -> int:
    """Returns how many requests have been sent to the language server, counted from the first call."""
    return int(
        editor.lua("""
        if not vim.g.num_requests then
          vim.g.num_requests = 0
          vim.api.nvim_create_autocmd('LspRequest', { callback = function(event)
            if event.data.request.type == 'pending' then vim.g.num_requests = vim.g.num_requests + 1 end
          end })
        end
        return vim.g.num_requests
    """)
    )


def test_after_dismissing_nothing_is_offered_until_the_text_changes(edit: Edit) -> None:
    editor = edit([""])
    editor.type("iNod")
    editor.wait_for_ghost("e(value, x)")
    num_before = _count_lsp_requests(editor)
    editor.type_and_wait("<M-d>")
    assert editor.ghost is None
    editor.type_and_wait("<Left><Right>")
    time.sleep(0.3)
    assert (editor.ghost, _count_lsp_requests(editor)) == (None, num_before)
    editor.type("e")
    editor.wait_for_ghost("(value, x)")


def test_the_sent_text_is_the_text_in_the_buffer(edit: Edit, script: Script) -> None:
    editor = edit(["one 😀 two", "", "thrée", "four", "\tfive\x0c six"])
    for keys in ("ggdd", "u", "jjyyp", ":%s/o/00/g<CR>", "u", "<C-r>", "ggVGd", "u", "Gdd", "ggJx", ":2,3move 0<CR>"):
        editor.type("<Esc>" + keys)
    editor.type("<Esc>GAEND")
    editor.wait_for_ghost("!")
    started = [event["prefix"] for event in script.events if event["event"] == "started"]
    assert started[-1] == "\n".join(editor.lines)


def test_where_the_cursor_rests_the_text_is_sent_before_a_key(edit: Edit, script: Script) -> None:
    editor = edit(NODE)
    editor.type("gg")
    editor.type("jwl")
    before, after = "class Node:\n    d", "ef __init__(self, value):\n" + "\n".join(NODE[2:]) + "\n"
    editor.wait_for(lambda: script.last_prefetch, (before, after))
    assert script.count("started", before) == 0


@pytest.mark.parametrize("key", ["<Esc>", "<C-c>", "<Insert>"])
def test_leaving_insert_mode_hides_the_ghost_text_and_cancels_the_generation(
    key: str, edit: Edit, script: Script
) -> None:
    editor = edit([""])
    editor.type("iNod")
    editor.wait_for_ghost("e(value, x)")
    editor.type(key)
    editor.wait_for(lambda: editor.ghost, None)
    editor.type_and_wait("<Esc>")
    editor.type("ccslow")
    editor.wait_for(lambda: script.count("started", "slow"), 1)
    editor.type(key)
    editor.wait_for(lambda: script.count("cancelled", "slow"), 1)


@pytest.mark.parametrize(("option", "keys"), [("paste", "x<BS>"), ("virtualedit=all", "<Right>")])
def test_nothing_is_offered_that_could_not_be_accepted_as_it_is_shown(option: str, keys: str, edit: Edit) -> None:
    editor = edit([""])
    editor.type("iNod")
    editor.wait_for_ghost("e(value, x)")
    editor.nvim.command(f"set {option}")
    try:
        editor.type(keys)
        editor.wait_for(lambda: (editor.lines, editor.ghost), (["Nod"], None))
    finally:
        editor.nvim.command("set nopaste virtualedit=")


def test_a_buffer_without_a_name_is_completed_from_its_own_text_and_has_a_name_once_it_is_written(
    edit: Edit, script: Script, tmp_path: Path
) -> None:
    editor = edit([""])

    def complete(keys: str) -> list[str]:
        editor.type(keys)
        editor.wait_for_ghost("e(value, x)")
        editor.type_and_wait("<Esc>")
        return [event["prefix"] for event in script.events if event["event"] == "started"]

    editor.nvim.command("set hidden | enew | setfiletype python")
    first = editor.nvim.current.buffer
    assert complete("ifirst<CR>Nod")[-1] == "first\nNod"
    editor.nvim.command("enew | setfiletype python")
    assert complete("isecond<CR>Nod")[-1] == "second\nNod"
    editor.nvim.command("bprevious")
    assert editor.nvim.current.buffer == first
    assert complete("oNod")[-1] == "first\nNod\nNod"
    editor.nvim.command(f"write {tmp_path / 'named.py'}")
    assert complete("oNod")[-1] == "first\nNod\nNod\nNod"
    editor.wait_for(lambda: editor.status, "midtoken: ready")
    assert "not open" not in editor.messages


@pytest.mark.parametrize(("keys", "line"), [("<C-d>", "  x = Nod\t"), ("<C-u>", "\t"), ("<CR>", "\t")])
def test_tab_does_not_insert_a_suggestion_for_text_that_is_no_longer_before_the_cursor(
    edit: Edit, keys: str, line: str
) -> None:
    editor = edit(["if x:"])
    editor.nvim.command("setlocal noexpandtab softtabstop=0 shiftwidth=2 indentexpr= noautoindent | set nosmarttab")
    editor.type("o    x = Nod")
    editor.wait_for_ghost("e(value, x)")
    editor.type_and_wait(keys + "<Tab>")
    assert (editor.lines[-1], editor.ghost) == (line, None)


def test_an_older_neovim_has_suggestions_too(tmp_path: Path, write_script: WriteScript) -> None:
    script = write_script(*RULES)
    with run_neovim(tmp_path, program="nvim-older") as editor:
        editor.lua("require('midtoken').setup(...)", {"cmd": script.command})
        open_file(editor, tmp_path / "file.py", ["", "", "é"])
        editor.type("iNod")
        editor.wait_for_ghost("e(value, x)")
        editor.type_and_wait("<M-w><Tab><Esc>j.")
        assert editor.lines == ["Node(value, x)", "Node(value, x)", "é"]
        editor.type("GAEND")
        editor.wait_for_ghost("!")
        editor.type_and_wait("<Esc>")
        editor.lua("for _, pid in ipairs(vim.api.nvim_get_proc_children(vim.fn.getpid())) do vim.uv.kill(pid, 9) end")
        editor.wait_for(lambda: "is started again" in editor.messages, True)
        editor.wait_for(lambda: editor.status, "midtoken: ready")
        open_file(editor, tmp_path / "other.py", [""])
        assert editor.lua("return #vim.lsp.get_clients({ name = 'midtoken' })") == 1
        editor.nvim.command("silent! checkhealth midtoken")
        report = "\n".join(editor.lines)
        editor.nvim.command(f"buffer {tmp_path / 'other.py'}")
        editor.lua("require('midtoken').setup(...)", {"cmd": script.command, "settings": {"exclude": ["other.py"]}})
        editor.wait_for(lambda: editor.status.startswith("midtoken: off ("), True)
    assert "a completion came after" in report
    assert "ERROR" not in report


def test_a_later_setup_counts_for_the_files_that_are_open(
    open_editor: OpenEditor, write_script: WriteScript, tmp_path: Path
) -> None:
    script = write_script({"ends_with": "Nod", "texts": ["e"]})
    editor = open_editor(script.command, [""], keys={"accept": "<C-y>"})
    set_again = "require('midtoken').setup(...)"
    editor.type("iNod")
    editor.wait_for_ghost("e")
    (tmp_path / "other").mkdir()
    other = make_script(tmp_path / "other", {"ends_with": "Nod", "texts": ["ule"]})
    editor.lua(set_again, {"cmd": other.command})
    editor.wait_for(lambda: script.count("closed"), 1)
    editor.wait_for_ghost("ule")
    editor.type_and_wait("<Tab>")
    assert editor.lines == ["Nodule"]
    for settings in ({"exclude": ["file.py"]}, {"maxTokens": 3}, {"enabled": False}):
        editor.lua(set_again, {"cmd": other.command, "settings": settings})
        editor.wait_for(lambda: editor.status.startswith("midtoken: off ("), True)
        editor.type("<CR>Nod")
        time.sleep(0.5)
        sent = [entry["prefix"] for entry in other.events if "\nNod" in entry.get("prefix", "")]
        assert (sent, editor.ghost) == ([], None)


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
def test_a_later_setup_takes_no_protection_away(first: object, second: object, expected: object, edit: Edit) -> None:
    set_both = """
        local before = package.loaded['midtoken.options']
        package.loaded['midtoken.options'] = nil
        local options, first, second = require('midtoken.options'), ...
        package.loaded['midtoken.options'] = before
        options.set({ settings = first })
        return options.set({ settings = second }).settings
    """
    assert edit([]).lua(set_both, first, second) == expected
