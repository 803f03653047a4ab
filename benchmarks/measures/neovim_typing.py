"""Typing lines in a real Neovim at a person's pace: at how many keys ghost text is visible, and how soon it comes.

A screen is attached, and what counts is what is drawn there. Ghost text is *visible* at a key if it is on the screen
when the next key comes. It is *new* if it was not there when the screen was drawn first after the key: then the key
did not agree with what was shown. Keys for which the language server answers that there is nothing to suggest do not
count, those that it is not asked for do.
"""

import asyncio
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from benchmarks.measures.host import run_host
from benchmarks.measures.lsp_client import LANGUAGE_SERVER
from benchmarks.measures.report import Figures, Measured, find_mean, find_percentile, track
from inference.config import EngineConfig
from models.training.corpus import iter_held_out
from tests.support.neovim_editor import PLUGIN, Editor, open_file, run_neovim

_NUM_LINES, _NUM_SHORT_LINES = 12, 2
_MIN_CHARS, _MAX_CHARS = 25, 60
_KEY_S, _REST_S = 0.15, 1.0
_SETTINGS = "syntax off | filetype on | set noswapfile shortmess+=I autoindent& hidden"
# Neovim writes down when keys come, when the screen is drawn and whether ghost text is on it, and what is answered.
_RECORD = """
local namespace, keys = vim.api.nvim_create_namespace('midtoken'), {}
local function has_ghost() return #vim.api.nvim_buf_get_extmarks(0, namespace, 0, -1, { limit = 1 }) > 0 end
local was_visible = false
vim.on_key(function(_, typed)
  if typed == '' or vim.fn.mode() ~= 'i' then return end
  if keys[#keys] then keys[#keys].visible = was_visible end
  table.insert(keys, { at_ns = vim.uv.hrtime(), tick = vim.b.changedtick })
end)
vim.api.nvim_set_decoration_provider(vim.api.nvim_create_namespace('record'), { on_end = function()
  was_visible = has_ghost()
  local key = keys[#keys]
  if not key or vim.b.changedtick == key.tick then return end -- the key has not been executed yet
  if key.agrees == nil then key.agrees = was_visible end
  if was_visible and not key.ms then key.ms = (vim.uv.hrtime() - key.at_ns) / 1e6 end
end })
vim.api.nvim_create_autocmd('LspAttach', { callback = function(event)
  local client = vim.lsp.get_client_by_id(event.data.client_id)
  local request = client.rpc.request
  client.rpc.request = function(method, params, callback, ...)
    local key = method == 'textDocument/inlineCompletion' and keys[#keys]
    return request(method, params, function(err, result, ...)
      if key and result and result.items and #result.items == 0 then key.is_empty = true end
      return callback(err, result, ...)
    end, ...)
  end
end, once = true })
function TakeKeys() local taken = keys; keys = {}; return taken end
"""


class _Key(TypedDict, total=False):
    """What Neovim writes down of a key."""

    visible: bool
    agrees: bool
    ms: float
    is_empty: bool


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of a file, and the file without it."""

    number: int
    text: str
    others: Sequence[str]


def measure_typing(is_short: bool, config: EngineConfig) -> Iterator[Measured]:
    """Types lines of held-out files, with a model in a host."""
    num_lines = _NUM_SHORT_LINES if is_short else _NUM_LINES
    with tempfile.TemporaryDirectory(prefix="midtoken-") as folder:
        keys = asyncio.run(_type_before_host(Path(folder), num_lines, config))
        yield Measured(_find_figures(keys))  # before the folder is deleted


async def _type_before_host(folder: Path, num_lines: int, config: EngineConfig) -> list[Sequence[_Key]]:
    async with run_host(config) as url:
        return await asyncio.to_thread(_type_lines, [*LANGUAGE_SERVER, "--server", url], folder, num_lines)


def _type_lines(command: Sequence[str], folder: Path, num_lines: int) -> list[Sequence[_Key]]:
    settings = folder / "init.vim"
    settings.write_text(f"{_SETTINGS}\nset runtimepath+={PLUGIN}\n")
    with run_neovim(folder, "-u", str(settings)) as editor:
        editor.lua("require('midtoken').setup(...)", {"cmd": list(command)})
        editor.lua(_RECORD)
        lines = [_Line(0, "import os", []), *_draw_lines(random.Random(1), num_lines)]  # the first starts everything
        keys = [_type(editor, folder / f"{index}.py", line) for index, line in enumerate(track(lines, "typing lines"))]
        editor.lua("vim.iter(vim.lsp.get_clients()):each(function(client) client:stop() end)")
        editor.wait_for(
            lambda: editor.lua("return #vim.lsp.get_clients()"), 0
        )  # it writes into the folder when it ends
        return keys[1:]


def _find_figures(keys: Sequence[Sequence[_Key]]) -> Figures:
    counted = [key for each in keys for key in each[:-1] if not key.get("is_empty")]  # nothing follows the last
    new_ms = [key["ms"] for key in counted if "ms" in key and not key.get("agrees")]
    return {
        "neovim_keys": len(counted),
        "neovim_visible_share_150ms": find_mean(key.get("visible", False) for key in counted),
        "neovim_key_to_ghost_ms_p50": find_percentile(new_ms, 50),
        "neovim_key_to_ghost_ms_p99": find_percentile(new_ms, 99),
    }


def _draw_lines(rng: random.Random, num_lines: int) -> Iterator[_Line]:
    files = list(iter_held_out())
    for file in rng.sample(files, len(files))[:num_lines]:
        lines = file.text.split("\n")
        fitting = [i for i, line in enumerate(lines) if line.isascii() and _MIN_CHARS <= len(line) <= _MAX_CHARS]
        number = rng.choice(fitting)
        yield _Line(number, lines[number], [*lines[:number], *lines[number + 1 :]])


def _type(editor: Editor, file: Path, line: _Line) -> Sequence[_Key]:
    """Types a line at its place. Returns its keys without those of the indentation."""
    open_file(editor, file, line.others or [""])
    editor.nvim.command("setlocal indentexpr= indentkeys= noautoindent textwidth=0")
    if line.number == 0:
        editor.wait_for(lambda: editor.status, "midtoken: ready", within_s=120)
    indentation = line.text[: len(line.text) - len(line.text.lstrip())]
    editor.nvim.api.win_set_cursor(0, (max(line.number, 1), 0))
    editor.type_and_wait(("o" if line.number else "O") + indentation)
    time.sleep(_REST_S)
    editor.lua("TakeKeys()")
    for char in line.text.strip():
        editor.type("<lt>" if char == "<" else char)
        time.sleep(_KEY_S)
    keys: Sequence[_Key] = editor.lua("return TakeKeys()")
    editor.type_and_wait("<Esc>")
    return keys
