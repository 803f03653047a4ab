"""Random editing in Helix: its buffer is the language server's text, and its menu is the answer for that text."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.helix_editor import run_helix
from tests.support.replay.recording import Ask, Item, Recording, expand_tabs, write_script
from tests.support.replay.samples import LINES, TYPED
from tests.support.replay.steps import Action, Outcome, Replay, find_line_end, run_steps
from tests.support.terminal import Terminal

_SETTINGS = """[editor]
idle-timeout = 0
completion-timeout = 5
completion-trigger-len = 1
gutters = []
word-completion.enable = false
[keys.insert]
F5 = ":write!"
"""
_SIZE = (60, 220)
_WRITE, _ESCAPE, _CONTROL_C, _CONTROL_X, _DELETE = "\x1b[15~", "\x1b", "\x03", "\x18", "\x1b[3~"
_BACKSPACE, _TAB, _BACK_TAB, _ENTER = "\x7f", "\t", "\x1b[Z", "\r"
_MOVES = ("\x1b[D", "\x1b[C", "\x1b[A", "\x1b[B", "\x1b[H", "\x1b[F")
_KIND = " text"  # the menu's second column; the samples do not contain it
_PATIENCE_S = 15.0

STEPS_EACH = 50  # of a replay: the text must fit on the screen


def play(folder: Path, seed: int, num_steps: int) -> Outcome:
    """Plays one replay in a new Helix."""
    with _open(folder, find_line_end(seed)) as (terminal, file, recording):
        replay = HelixReplay(terminal, file, recording, seed)
        return run_steps(replay, num_steps)


@contextmanager
def _open(folder: Path, end: str) -> Iterator[tuple[Terminal, Path, Recording]]:
    folder.mkdir(parents=True, exist_ok=True)
    file, record = folder / "file.py", folder / "record.jsonl"
    file.write_text("".join(line + end for line in LINES), newline="")
    with run_helix(folder, file, write_script(folder), _SETTINGS, size=_SIZE) as terminal:
        recording = Recording(record, "utf-8")
        terminal.wait_for(lambda lines: " NOR " in lines[-2] and "file.py" in lines[-2])
        terminal.type("i")

        def has_asked(_: list[str]) -> bool:
            recording.read()
            return bool(recording.asks) and recording.is_idle

        terminal.wait_for(has_asked, keys=_CONTROL_X)  # Helix does not ask a language server that is still starting
        terminal.type(_CONTROL_C)
        yield terminal, file, recording


class HelixReplay(Replay):
    """What is shown is the menu's entry, if the menu is open."""

    def __init__(self, terminal: Terminal, file: Path, recording: Recording, seed: int) -> None:
        super().__init__(recording, seed)
        self._terminal = terminal
        self._file = file

    def list_actions(self) -> Sequence[tuple[float, Action]]:
        return [
            (4, self._type),
            (4, self._type_ahead),
            (3, self._delete),
            (2, self._move),
            (3, self._accept),
            (1.5, self._accept_by_typing),
            (1, self._cycle),
            (1, self._delete_and_accept),
            (1, self._type_and_accept),
            (1, self._dismiss),
            (1, self._ask),
            (0.7, self._undo),
            (0.5, self._leave_and_return),
        ]

    def _type(self) -> None:
        """A character, sometimes several before the first is answered."""
        self._press("".join(self.rng.choice(TYPED) for _ in range(self.rng.choice([1, 1, 2]))).replace("\t", "e"))
        self._compare()

    def _type_ahead(self) -> None:
        rest = self._find_rest()
        self._press(rest[: self.rng.randint(1, 3)].splitlines()[0].replace("\t", "") if rest.strip() else "x")
        self._compare()

    def _delete(self) -> None:
        self._press(self.rng.choice([_BACKSPACE, _BACKSPACE, _DELETE]))
        self._compare()

    def _move(self) -> None:
        self._press(_WRITE)  # closes the menu, in which some of the keys would select
        self._press(self.rng.choice(_MOVES))
        self._compare()

    def _ask(self) -> None:
        self._press(_CONTROL_X)
        self._compare()

    def _accept(self) -> None:
        item = self._offer()
        if item is None:
            return
        self._press(_TAB)
        self._wait(lambda: self._find_difference(item.result, menu=item.label))  # the preview is in the buffer
        self._press(_ENTER)
        self._compare(wanted=item.result)
        self.counts.accepted += 1

    def _accept_by_typing(self) -> None:
        item = self._offer()
        if item is None:
            return
        self._press(_TAB)
        self._press("_")
        self._compare(wanted=item.before + item.text + "_" + item.after)
        self.counts.accepted_parts += 1

    def _cycle(self) -> None:
        """Selects the entry, no entry and the entry again, and then dismisses the menu."""
        item = self._offer()
        if item is None:
            return
        before = self._recording.text
        self._press(_TAB + _BACK_TAB + _TAB)
        self._wait(lambda: self._find_difference(item.result, menu=item.label))
        self._press(_CONTROL_C)
        self._compare(wanted=before)
        self.counts.dismissed += 1

    def _delete_and_accept(self) -> None:
        """The menu stays open. Its entry brings the deleted text back, because Helix inserts it where it asked."""
        self._offer()
        self._press(_DELETE)
        self._compare(writes=False)
        self._accept()

    def _type_and_accept(self) -> None:
        """The keys come before the answer: Helix may insert the suggestion or a tab, but nothing else."""
        self._press(self.rng.choice("xe(") + _TAB + _WRITE)
        self._compare(writes=True)

    def _dismiss(self) -> None:
        if self._offer() is None:
            return
        before = self._recording.text
        self._press(_CONTROL_C)
        self._compare(wanted=before)
        self.counts.dismissed += 1

    def _undo(self) -> None:
        self._press(_ESCAPE)
        self._terminal.wait_for(lambda lines: " NOR " in lines[-2])
        self._press(self.rng.choice(["u", "u", "uU"]))
        self.counts.undone += 1
        self._enter()

    def _leave_and_return(self) -> None:
        self._press(_ESCAPE)
        self._terminal.wait_for(lambda lines: " NOR " in lines[-2])
        self._enter()

    def _enter(self) -> None:
        self._press(self.rng.choice("iaIA"))
        self._terminal.wait_for(lambda lines: " INS " in lines[-2])
        self._compare()

    def _press(self, keys: str) -> None:
        self.steps.append(keys)
        self._terminal.type(keys)

    def _offer(self) -> Item | None:
        """Returns the entry that is shown. If none is, types something that the scripted model completes."""
        if self._shown is None:
            before = self._recording.text
            self._press("x")
            try:
                self._wait(lambda: self._find_missing_menu(before), _PATIENCE_S / 3)
            except AssertionError:  # on a busy machine, Helix sometimes does not ask by itself
                self._press(_CONTROL_X)
                self._wait(lambda: self._find_missing_menu(before))
        return self._shown

    def _find_missing_menu(self, before: str | None) -> str | None:
        """Returns why the menu for a key is not open yet; None also if there is nothing to suggest."""
        difference, ask = self._find_disagreement(), self._recording.last
        if difference is not None:
            return difference
        if self._recording.text == before or ask is None or ask.text != self._recording.text:
            return "Helix has not asked for the text after the key"
        return f"the menu does not show {ask.items}" if ask.items and self._shown is None else None

    def _compare(self, wanted: str | None = None, writes: bool | None = None) -> None:
        """Waits until all agrees. In most steps, Helix also writes the file, which closes the menu."""
        self._wait(self._find_disagreement)
        self.counts.shown += self._shown is not None
        if wanted is not None or (self.rng.random() < 0.6 if writes is None else writes):
            written_ns = self._file.stat().st_mtime_ns
            self._press(_WRITE)
            self._wait(lambda: self._find_written_difference(written_ns, wanted))
            self._shown = None

    def _find_disagreement(self) -> str | None:
        """Returns what does not agree, in words: the screen with the text, the menu with the answer."""
        recording, lines = self._recording, self._terminal.lines
        recording.read()
        ask, shown = recording.last, _find_menu(lines)
        self._shown = None
        if not recording.is_idle or recording.text is None:
            return "a request has no answer"
        if shown is None:
            return self._find_difference(recording.text)
        self._shown = _find_valid(ask, recording.text)
        if self._shown is None:
            return f"the menu shows {shown!r}, and the answer for this text is {ask and ask.items}"
        return self._find_difference(recording.text, menu=self._shown.label)

    def _find_difference(self, wanted: str, menu: str | None = None) -> str | None:
        """Compares the screen with a text, and the menu with the label of its entry, if it must be open."""
        lines = self._terminal.lines
        if menu is not None:
            shown = _find_menu(lines)
            if shown is None or not shown.rstrip().endswith(menu.rstrip()):
                return f"the menu shows {shown!r} instead of {menu!r}"
        rows = [expand_tabs(line) for line in wanted.replace("\r\n", "\n").split("\n")]
        if len(rows) > _SIZE[0] - 3 or max(map(len, rows)) > _SIZE[1] // 2:
            return None  # not all of it is on the screen
        num_visible = next((number for number, line in enumerate(lines) if _KIND in line), len(rows))
        for row, line in zip(rows[:num_visible], lines, strict=False):
            if row.rstrip() != line.rstrip():
                return f"the screen shows {line!r} instead of {row!r}:\n" + "\n".join(lines).rstrip()
        return None

    def _find_written_difference(self, before_ns: int, wanted: str | None) -> str | None:
        self._terminal.lines  # noqa: B018 - Helix waits if nobody reads its output
        self._recording.read()
        try:
            is_written = self._file.stat().st_mtime_ns != before_ns
            text = self._file.read_bytes().decode()
        except FileNotFoundError:  # Helix writes another file and renames it
            is_written, text = False, ""
        if not is_written:
            return "Helix does not write the file"
        if text != self._recording.text:
            return f"the buffer is {text!r}, the language server has {self._recording.text!r}"
        return f"the buffer is {text!r} instead of {wanted!r}" if wanted is not None and text != wanted else None

    def _wait(self, find: Callable[[], str | None], within_s: float = _PATIENCE_S) -> None:
        deadline_s = time.monotonic() + within_s
        while (difference := find()) is not None:
            assert time.monotonic() < deadline_s, difference
            time.sleep(0.01)


def _find_valid(ask: Ask | None, text: str) -> Item | None:
    """Returns the entry that was answered for this text, or before text after the cursor was deleted."""
    if ask is None or not ask.items:
        return None
    is_kept = text.startswith(ask.text[: ask.cursor]) and ask.text.endswith(text[ask.cursor :])
    return ask.items[0] if is_kept else None


def _find_menu(lines: Sequence[str]) -> str | None:
    """Returns the line of the menu's first entry, or what is left of it."""
    row = next((line for line in lines[:-2] if _KIND in line), None)
    return None if row is None else row.partition(_KIND)[0]
