"""Random editing in VS Code: its buffer is the language server's text, and its screen is the answer for that text."""

import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.replay.recording import Ask, Item, Recording, expand_tabs, write_script
from tests.support.replay.samples import LINES, TYPED
from tests.support.replay.steps import Action, Outcome, Replay, find_line_end, run_steps
from tests.support.vscode import VsCode, install_extension, open_vscode, write_command

# Each change is saved, so that the file is the buffer. More lines fit in the window.
_SETTINGS = {
    "files.autoSave": "afterDelay",
    "files.autoSaveDelay": 1,
    "editor.fontSize": 8,
    "editor.lineHeight": 10,
    "editor.stickyScroll.enabled": False,
}
_MAX_LINES = 45
_MOVES = ("ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End", "Control+Home", "Control+End")
_ACCEPT, _ACCEPT_WORD, _ACCEPT_LINE = "Tab", "Control+ArrowRight", "Control+Alt+ArrowRight"
_UNDO = ("Control+z", "Control+z", "Control+y")
_PATIENCE_S = 15.0

STEPS_EACH = 60  # of a replay: the text must fit on the screen


def play(extensions: Path, folder: Path, seed: int, num_steps: int) -> Outcome:
    """Plays one replay in a new VS Code, in which the extension is installed."""
    with _open(extensions, folder, find_line_end(seed)) as (editor, recording):
        replay = VsCodeReplay(editor, recording, seed)
        return run_steps(replay, num_steps)


@contextmanager
def _open(extensions: Path, folder: Path, end: str) -> Iterator[tuple[VsCode, Recording]]:
    workspace, program = folder / "workspace", folder / "midtoken"
    workspace.mkdir(parents=True)
    if not extensions.exists():
        install_extension(extensions)
    write_command(program, write_script(folder))
    file = workspace / "file.py"
    file.write_text("".join(line + end for line in LINES), newline="")
    settings = {**_SETTINGS, "midtoken.command": [str(program)]}
    with open_vscode(extensions, workspace, file, {"PATH": "/usr/bin:/bin"}, settings) as editor:
        editor.wait_for(lambda: "ready" in editor.status, True)
        editor.press("Control+Home")
        yield editor, Recording(folder / "record.jsonl", "utf-16-le")


class VsCodeReplay(Replay):
    def __init__(self, editor: VsCode, recording: Recording, seed: int) -> None:
        super().__init__(recording, seed)
        self._editor = editor
        self._num_asks = 0  # before the last key
        self._text_before: str | None = None

    def list_actions(self) -> Sequence[tuple[float, Action]]:
        return [
            (4, self._type),
            (4, self._type_ahead),
            (3, self._delete),
            (2, self._move),
            (2, self._accept),
            (2, lambda: self._accept_part(_ACCEPT_WORD)),
            (2, lambda: self._accept_part(_ACCEPT_LINE)),
            (1.5, self._type_and_accept),
            (1, self._choose),
            (1, self._dismiss),
            (1, self._undo),
        ]

    def _type(self) -> None:
        """A character, sometimes several before the first is answered."""
        for _ in range(self.rng.choice([1, 1, 2])):
            self._input(self.rng.choice(TYPED).replace("\t", "e"))
        self._compare(self._find_unasked)
        self._forget_unchanged()

    def _type_ahead(self) -> None:
        rest = self._find_rest()
        line = rest.splitlines()[0].replace("\t", "") if rest else ""
        self._input(line[: self.rng.randint(1, 3)] or "x")
        self._compare(self._find_unasked)
        self._forget_unchanged()

    def _delete(self) -> None:
        self._press(self.rng.choice(["Backspace", "Backspace", "Delete"]))
        self._compare(self._find_unasked)
        self._forget_unchanged()

    def _move(self) -> None:
        self._press(self.rng.choice(_MOVES))
        self._num_asks = sys.maxsize  # a request of the step before may be for the place that the cursor has left
        self._compare()
        self._forget_unchanged()

    def _accept(self) -> None:
        item = self._offer()
        if self._find_rest()[:1].isspace() and self._find_rest()[:1] != "\n":
            return  # VS Code indents with this key if the suggestion begins with indentation
        self._press(_ACCEPT)
        self._compare(lambda text: None if text == item.result else f"{text!r} instead of {item.result!r}")
        self.counts.accepted += 1

    def _accept_part(self, key: str) -> None:
        item, ask = self._offer(), self._recording.last
        assert ask is not None
        self._press(key)
        self._compare(lambda text: _find_wrong_part(text, item, ask))
        self.counts.accepted_parts += 1

    def _type_and_accept(self) -> None:
        """The keys come before the answer: VS Code may insert the suggestion or a tab, but nothing else.

        Not the key for a line: without a suggestion, VS Code moves the editor into another group with it.
        """
        self._input(self._find_rest()[:1].strip() or self.rng.choice("xe("))
        self._press(self.rng.choice([_ACCEPT, _ACCEPT_WORD]))
        self._num_asks = sys.maxsize  # nothing needs to be shown: the key may have moved the cursor
        self._compare()

    def _choose(self) -> None:
        before = self._offer()
        self._press(self.rng.choice(["Alt+]", "Alt+["]))
        self._compare(lambda _: self._find_unchosen(before))

    def _dismiss(self) -> None:
        self._offer()
        before = self._recording.text
        self._press("Escape")
        self._compare(lambda text: None if (text, self._shown) == (before, None) else "the suggestion is shown still")
        self.counts.dismissed += 1

    def _undo(self) -> None:
        self._press(self.rng.choice(_UNDO))
        self._compare()
        self._forget_unchanged()
        self.counts.undone += 1

    def _input(self, text: str) -> None:
        self._begin(text)
        self._editor.type(text)

    def _press(self, keys: str) -> None:
        self._begin(keys)
        self._editor.press(keys)

    def _begin(self, step: str) -> None:
        self.steps.append(step)
        self._num_asks = len(self._recording.asks)
        self._text_before = self._recording.text

    def _offer(self) -> Item:
        """Returns the suggestion that is shown. If none is, types something that the scripted model completes."""
        for _ in range(20):
            if self._shown is not None:
                return self._shown
            self._input(self.rng.choice("xe=ж"))
            self._compare(self._find_unasked)
        raise AssertionError("nothing is suggested")

    def _forget_unchanged(self) -> None:
        """If the key did not change the text, it may have moved the cursor: a suggestion that is shown may go soon."""
        if self._recording.text == self._text_before:
            self._shown = None

    def _find_unasked(self, text: str) -> str | None:
        """A key that may change the text was pressed. Returns what is still missing, in words."""
        ask = self._recording.last
        is_asked = text == self._text_before or (ask is not None and ask.text == text)
        return None if is_asked else f"VS Code has not asked for {text!r}"

    def _find_unchosen(self, before: Item) -> str | None:
        """The next suggestion was asked for. Returns what is still missing, in words."""
        ask = self._recording.last
        if ask is None or not ask.is_invoked:
            return "VS Code has not asked for all suggestions"
        return f"{before} is still shown" if len(ask.items or []) > 1 and self._shown == before else None

    def _compare(self, find_wrong: Callable[[str], str | None] = lambda _: None) -> None:
        """Waits until all agrees. A suggestion that is shown still, from before the last answer, is forgotten.

        VS Code replaces it when it gets to the answer, unless a part of it was accepted or a change undone.
        """
        deadline_s, is_saved = time.monotonic() + _PATIENCE_S, False
        while (difference := self._find_disagreement() or find_wrong(self._recording.text or "")) is not None:
            now_s = time.monotonic()
            assert now_s < deadline_s, difference
            if not is_saved and now_s > deadline_s - _PATIENCE_S / 2:
                is_saved = True  # an undo that comes while VS Code saves by itself is not saved by itself
                self._editor.press("Control+s")
            time.sleep(0.01)
        self.counts.shown += self._shown is not None
        ask = self._recording.last
        if ask is not None and self._shown not in (ask.items or []):
            self._shown = None

    def _find_disagreement(self) -> str | None:
        """Returns what does not agree, in words: the file with the text, the screen with the answer."""
        recording = self._recording
        recording.read()
        lines, own_lines, has_ghost = self._editor.screen
        text, ask, self._shown = recording.text, recording.last, None
        if not recording.is_idle or text is None:
            return "a request has no answer"
        if (saved := self._editor.file.read_bytes().decode()) != text:
            return f"the buffer is {saved!r}, the language server has {text!r}"
        if not _is_drawn(own_lines, text):
            return f"the screen shows {own_lines}, the language server has {text!r}"
        offered = ask.items or [] if ask is not None and ask.text == text else []
        if not has_ghost:
            if offered and len(recording.asks) > self._num_asks:
                return f"nothing is shown instead of {offered[0]}"
            return _find_difference(lines, [text])
        if ask is None or ask.text != text:
            return f"the screen shows {lines}, and there is no answer for this text"
        offered = [*offered, *_find_kept(ask, recording.asks[-20:], self.steps[-1] in _UNDO)]
        self._shown = next((item for item in offered if not _find_difference(lines, [item.result])), None)
        return _find_difference(lines, [item.result for item in offered])


def _find_kept(now: Ask, asks: Sequence[Ask], is_undone: bool) -> list[Item]:
    """Returns earlier suggestions that the text agrees with. VS Code goes on showing one that still fits.

    It replaces brackets and quotes that VS Code has inserted after the cursor since, and what an undo brought back.
    """
    before, after = now.text[: now.cursor], now.text[now.cursor :]
    earlier = [other for ask in asks for other in ask.items or []]
    return [
        other
        for other in earlier
        if (other.before + other.text).startswith(before)
        and (_follows_closers(after, other.after) or (is_undone and after.endswith(other.after)))
    ]


def _follows_closers(text: str, after: str) -> bool:
    return text.endswith(after) and not text.removesuffix(after).strip(")]}\"'")


def _find_difference(lines: Sequence[str], wanted: Sequence[str]) -> str | None:
    """Compares what the window shows with texts, one of which it should show."""
    if any(text.count("\n") > _MAX_LINES for text in wanted):
        return None
    shown = [line.rstrip() for line in lines]
    for text in wanted:
        if shown == [expand_tabs(line).rstrip() for line in text.replace("\r\n", "\n").split("\n")]:
            return None
    return f"the screen shows {lines} instead of one of {wanted}"


def _is_drawn(lines: Sequence[str], text: str) -> bool:
    """Returns whether these are the lines of the text. Ghost text before a tab changes the tab's width."""
    rows = text.replace("\r\n", "\n").split("\n")
    patterns = [re.escape(row).replace("\\\t", " {1,4}") or " ?" for row in rows]
    return len(rows) > _MAX_LINES or (
        len(rows) == len(lines) and all(re.fullmatch(*pair) for pair in zip(patterns, lines, strict=True))
    )


def _find_wrong_part(text: str, item: Item, ask: Ask) -> str | None:
    """A part was accepted: the text is what was there, the beginning of the suggestion's rest, and what comes after."""
    full = item.before + item.text
    for num_kept in range(len(item.replaced) + 1):
        after = item.replaced[len(item.replaced) - num_kept :] + item.after
        part = text.removesuffix(after)
        if len(part) + len(after) == len(text) and full.startswith(part) and len(part) > ask.cursor:
            return None
    return f"{text!r} instead of {full!r}, cut somewhere after {ask.cursor}"
