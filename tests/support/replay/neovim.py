"""Random editing in Neovim, compared with a model after each step."""

import json
import random
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.support.lsp_editor import make_script
from tests.support.neovim_editor import Editor, open_file, run_neovim
from tests.support.replay.samples import COMPLETIONS, LINES, TYPED
from tests.support.replay.steps import Counts, Outcome, find_line_end
from tests.support.text_model import Offer, TextModel

_KEYS = {"\n": "<CR>", "\t": "<C-v><Tab>", " ": "<Space>"}
_MOVES = ("<Left>", "<Right>", "<Home>", "<End>", "<Up>", "<Down>", "<C-Home>", "<C-End>")

# What is asked and answered is recorded where it leaves Neovim. Nothing is under way when the plugin has been told of
# the last key and each request has ended; those that are cancelled have no answer.
_INSTRUMENT = """
local method = 'textDocument/inlineCompletion'
local num_asked, num_ended, answer, followed = 0, 0, nil, nil
local function find_place()
  return vim.inspect({ vim.b.changedtick, vim.api.nvim_win_get_cursor(0) })
end
local function follow() followed = find_place() end
vim.api.nvim_create_autocmd({ 'CursorMovedI', 'TextChangedI' }, { callback = follow })
vim.api.nvim_create_autocmd('InsertEnter', { callback = vim.schedule_wrap(follow) })
vim.api.nvim_create_autocmd('LspAttach', { once = true, callback = function(event)
  local client = vim.lsp.get_client_by_id(event.data.client_id)
  assert(client.offset_encoding == 'utf-8')
  local request = client.rpc.request
  client.rpc.request = function(name, params, callback, notify)
    if name ~= method then return request(name, params, callback, notify) end
    num_asked = num_asked + 1
    local place = { number = num_asked, lines = vim.api.nvim_buf_get_lines(0, 0, -1, true),
      cursor = vim.api.nvim_win_get_cursor(0) }
    return request(name, params, function(err, result, ...)
      if not err and result and result ~= vim.NIL then
        place.items = result.items
        if not answer or answer.number < place.number then answer = place end -- answers may change places
      end
      return callback(err, result, ...)
    end, function(...)
      vim.schedule(function() num_ended = num_ended + 1 end) -- after the callback
      return notify(...)
    end)
  end
end })
function ReplayState()
  local mode = vim.api.nvim_get_mode().mode
  return {
    is_idle = num_asked == num_ended and (mode ~= 'i' or followed == find_place()),
    lines = vim.api.nvim_buf_get_lines(0, 0, -1, true), cursor = vim.api.nvim_win_get_cursor(0),
    num_asked = num_asked, answer = answer, tick = vim.b.changedtick, mode = mode,
  }
end
"""
_OPTIONS = "noautoindent indentexpr= noexpandtab softtabstop=0 textwidth=0 formatoptions= nosmarttab indentkeys="


def play(folder: Path, seed: int, num_steps: int) -> Outcome:
    """Plays one replay in a new Neovim."""
    folder.mkdir(parents=True, exist_ok=True)
    with run_neovim(folder) as editor:
        rules = [{"ends_with": ending, "texts": texts} for ending, texts in COMPLETIONS]
        script = make_script(folder, *rules, record=str(folder / "record.jsonl"))
        command = [sys.executable, "-m", "tests.support.recorded_server", script.command[-1]]
        editor.lua("require('midtoken').setup(...)", {"cmd": command})
        editor.lua(_INSTRUMENT)
        open_file(editor, folder / "file.py", LINES, find_line_end(seed))
        return NeovimReplay(editor, folder / "record.jsonl", LINES, seed).run(num_steps)


def _is_drawn_as(ghost: str | None, text: bytes | None) -> bool:
    """Whether the ghost text is this text, in which the plugin draws a tab as the blanks that the buffer would show."""
    if ghost is None or text is None:
        return ghost is None and text is None
    return re.fullmatch(" +".join(map(re.escape, text.decode().split("\t"))), ghost) is not None


class NeovimReplay:
    """Compares buffer, cursor and ghost text with the model."""

    def __init__(self, editor: Editor, record: Path, lines: Sequence[str], seed: int) -> None:
        self.counts = Counts()
        self.steps: list[str] = []  # so far, in words
        self.rng = random.Random(seed)
        self._record = record  # the texts that the language server has had
        self._editor = editor
        self._model = TextModel("\n".join(lines).encode())
        self._offers: list[Offer] = []  # the first that fits is shown
        self._direction = 0  # in which the key that was pressed last moves through several suggestions
        self._chosen_tick = -1  # of the buffer, when several were asked for
        self._num_seen = 0  # answers to requests up to this number are known to the model, or must not count
        editor.nvim.command(f"setlocal {_OPTIONS}")
        self._press("i")
        self._settle()

    def run(self, num_steps: int) -> Outcome:
        """Takes random steps up to the first mismatch."""
        weights, actions = zip(*self._list_actions(), strict=True)
        outcome = Outcome(self.counts)
        for _ in range(num_steps):
            self.counts.steps += 1
            try:
                self.rng.choices(actions, weights)[0]()
            except AssertionError as error:
                outcome.mismatches.append(f"{error}\nafter the steps {self.steps!r}")
                break
        return outcome

    def _list_actions(self) -> Sequence[tuple[float, Callable[[], None]]]:
        """The possible steps and their weights. Each raises AssertionError if something does not agree."""
        return [
            (4, self._type),
            (4, self._type_ahead),
            (2, self._type_pair),
            (3, self._delete),
            (3, self._move),
            (2, lambda: self._accept("<Tab>")),
            (2, lambda: self._accept("<M-w>")),
            (2, lambda: self._accept("<M-l>")),
            (4, self._edit_and_accept),
            (1, self._dismiss),
            (1, self._choose),
            (0.7, self._undo),
            (0.5, self._leave_and_return),
        ]

    def _type(self) -> None:
        text = self.rng.choice(TYPED)
        self._model.type(text.encode())
        self._press(_to_keys(text))
        if text != "\n" and self.rng.random() < 0.3:
            self._compare_text(self._read())  # the next step comes before the answer, or while it comes
            self._type()
        else:
            self._settle()

    def _type_pair(self) -> None:
        """As editors do that close brackets."""
        self._model.type(b"()")
        self._press("()")
        self._model.cursor -= 1
        self._model.close_block()
        self._press("<Left>")
        self._settle()

    def _type_ahead(self) -> None:
        self._pick()
        rest = (self._model.rest or b"").decode()
        text = rest[: self.rng.randint(1, 3)].split("\n")[0] or "a"
        self._model.type(text.encode())
        self._press(_to_keys(text))
        self._settle()

    def _delete(self) -> None:
        if self.rng.random() < 0.7:
            self._model.delete_before()
            self._press("<BS>")
        else:
            self._model.delete_after()
            self._press("<Del>")
        self._settle()

    def _move(self) -> None:
        key = self.rng.choice(_MOVES)
        self._press(key)
        state = self._read()
        self._compare_lines(state)
        moved = _find_offset(state["lines"], state["cursor"])
        if moved != self._model.cursor or key in ("<Home>", "<End>", "<C-Home>", "<C-End>"):
            self._model.close_block()
        self._model.cursor = moved
        self._settle()

    def _accept(self, key: str) -> None:
        self._accept_in_model(key)
        self._press(key)
        self._settle()

    def _edit_and_accept(self) -> None:
        """One batch of keys, so that Neovim asks nothing in between."""
        rest = (self._model.rest or b"").decode()
        text = self.rng.choice([rest[:1].strip("\n") or "e", self.rng.choice(TYPED)])
        key = self.rng.choice(["<Tab>", "<M-w>", "<M-l>"])
        keys = self.rng.choice([_to_keys(text), "<BS>", "<Del>", "<CR><BS>"])
        if keys == "<BS>":
            self._model.delete_before()
        elif keys == "<Del>":
            self._model.delete_after()
        elif keys == "<CR><BS>":
            self._model.type(b"\n")
            self._model.delete_before()
        else:
            self._model.type(text.encode())
        self._accept_in_model(key)
        self._press(keys + key)
        self._settle()

    def _accept_in_model(self, key: str) -> None:
        self._pick()
        model = self._model
        accept = {"<Tab>": model.accept, "<M-w>": model.accept_word, "<M-l>": model.accept_line}[key]
        if accept():
            self.counts.accepted += key == "<Tab>"
            self.counts.accepted_parts += key != "<Tab>"
            self._num_seen = self._read()["num_asked"]
        elif key == "<Tab>":
            model.type(b"\t")

    def _dismiss(self) -> None:
        self._pick()
        if self._model.rest is not None:
            self._model.offer = None
            self._num_seen = self._read()["num_asked"]
            self.counts.dismissed += 1
        self._press("<M-d>")
        self._settle()

    def _choose(self) -> None:
        self._pick()
        direction = self.rng.choice([1, -1])
        is_shown, state = self._model.rest is not None, self._read()
        if is_shown and (self._chosen_tick == state["tick"] or len(self._find_fitting()) > 1):
            self._rotate(direction)
        elif is_shown:
            self._direction, self._chosen_tick = direction, state["tick"]
        self._press("<M-n>" if direction == 1 else "<M-p>")
        self._settle()
        self._direction = 0

    def _find_fitting(self) -> list[Offer]:
        shown, fitting = self._model.offer, []
        for offer in self._offers:
            self._model.offer = offer
            fitting += [offer] if self._model.rest is not None else []
        self._model.offer = shown
        return fitting

    def _rotate(self, direction: int) -> None:
        fitting = self._find_fitting()
        self._offers = fitting[direction:] + fitting[:direction]
        self._model.offer = self._offers[0]

    def _pick(self) -> None:
        """Lets the model show the first suggestion that fits. It knows only one, and forgets it after other changes."""
        if self._model.offer is None:
            self._offers = []
        elif self._model.offer not in self._offers:  # what is left after a part was accepted
            self._offers = [self._model.offer]
        self._model.offer = next(iter(self._find_fitting()), self._model.offer)

    def _undo(self) -> None:
        self._model.undo()
        self.counts.undone += 1
        self._press("<Esc>u")
        self._enter()

    def _leave_and_return(self) -> None:
        self._model.leave()
        self._press("<Esc>")
        self._enter()

    def _enter(self) -> None:
        """Returns to insert mode, somewhere."""
        state = self._read()
        self._compare_lines(state)
        self._num_seen = state["num_asked"]
        self._press(self.rng.choice("iaIA"))
        state = self._read()
        self._model.cursor = _find_offset(state["lines"], state["cursor"])
        self._settle()

    def _press(self, keys: str) -> None:
        self.steps.append(keys)
        self._editor.type_and_wait(keys)

    def _read(self) -> dict[str, Any]:
        state: dict[str, Any] = self._editor.lua("return ReplayState()")
        return state

    def _settle(self) -> None:
        """Waits until nothing is under way, hands the last answer to the model, and compares."""
        state, ghost = self._read_idle()
        self._compare_text(state)
        self._take_answer(state)
        self._compare_mirror()
        self._pick()
        wanted = self._model.rest
        self.counts.shown += wanted is not None
        assert _is_drawn_as(ghost, wanted), f"ghost text {ghost!r}, not {wanted!r}"

    def _read_idle(self) -> tuple[dict[str, Any], str | None]:
        """Reads the state and the ghost text when nothing is under way, and nothing is sent in between."""
        while True:
            self._editor.wait_for(lambda: self._read()["is_idle"], True)
            state, ghost, later = self._read(), self._editor.ghost, self._read()
            if later["is_idle"] and later["num_asked"] == state["num_asked"]:
                return state, ghost

    def _take_answer(self, state: dict[str, Any]) -> None:
        answer = state["answer"]
        if not answer or answer["number"] <= self._num_seen:
            return
        self._num_seen = answer["number"]
        asked = "\n".join(answer["lines"]).encode()
        assert asked == self._model.text, "the last request is for another text"
        assert answer["cursor"] == state["cursor"], "the last request is for another place"
        self._offers = [_to_offer(answer, item) for item in answer["items"]]
        self._model.offer = next(iter(self._offers), None)
        if self._direction and self._find_fitting():
            self._rotate(self._direction)

    def _compare_text(self, state: dict[str, Any]) -> None:
        self._compare_lines(state)
        cursor = _find_offset(state["lines"], state["cursor"])
        assert cursor == self._model.cursor, f"cursor at {cursor} instead of {self._model.cursor}"

    def _compare_mirror(self) -> None:
        """Compares the text that the language server has with the buffer."""
        self._editor.wait_for(self._read_mirror, self._model.text.decode())

    def _read_mirror(self) -> str:
        text = json.loads(self._record.read_text().splitlines()[-1])
        return (text or "").replace("\r\n", "\n").removesuffix("\n")

    def _compare_lines(self, state: dict[str, Any]) -> None:
        text = "\n".join(state["lines"])
        assert text == self._model.text.decode(), f"buffer {text!r}\ninstead of {self._model.text.decode()!r}"


def _to_keys(text: str) -> str:
    return "".join(_KEYS.get(char, char) for char in text)


def _find_offset(lines: Sequence[str], cursor: Sequence[int]) -> int:
    row, column = cursor
    return sum(len(line.encode()) + 1 for line in lines[: row - 1]) + column


def _to_offer(answer: dict[str, Any], item: dict[str, Any]) -> Offer:
    """Reads the range of the item as the LSP specification says, with positions in bytes."""
    start, end = item["range"]["start"], item["range"]["end"]
    text = "\n".join(answer["lines"]).encode()
    cursor = _find_offset(answer["lines"], answer["cursor"])
    first = _find_offset(answer["lines"], (start["line"] + 1, start["character"]))
    last = _find_offset(answer["lines"], (end["line"] + 1, end["character"]))
    return Offer(text[:first], item["insertText"].encode(), text[cursor:last], text[last:])
