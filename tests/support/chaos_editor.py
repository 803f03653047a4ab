"""An editor that types while its server is broken: it times echoes, and compares each text with that of a calm time."""

import asyncio
import time
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from benchmarks.measures.lsp_client import Answer, LspClient, build_message

_URI = "file:///chaos/file.py"
_NOUNS = """
Apple Bridge Candle Dragon Engine Forest Garden Hammer Island Jacket Kettle Ladder Magnet Needle Orange Pencil Rocket
Saddle Temple Valley Window Yellow Anchor Basket Castle Dinner Finger Guitar Harbor Insect Jungle Kitten
"""
KEY_S = 0.1
_ASK_S = 0.2


def build_texts() -> list[str]:
    """Texts that a model completes with different words, at their ends."""
    return [f"def make({noun.lower()}_size, other):\n    return {noun[:3].lower()}" for noun in _NOUNS.split()]


@dataclass(slots=True)
class Seen:
    """What the editor has seen."""

    echo_ms: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


class ChaosEditor(LspClient):
    """One document, whose whole text each key replaces."""

    def prepare(self) -> None:
        """Opens the document. Call it once."""
        self.seen, self._texts = Seen(), build_texts()
        self._numbers = count()
        self._expected: dict[str, str] = {}
        self._shown, self._last = "", 0
        self.open(_URI, "")

    async def learn(self, within_s: float = 60.0) -> None:
        """Waits for the server, and notes what it completes while nothing is wrong."""
        assert await self.wait_until_back(within_s) is not None, "the server never answered"
        found = {text: read_text((await self.press(text)).result) for text in build_texts()}
        self._expected = {text: answer for text, answer in found.items() if answer}
        self._texts = [*self._expected]
        self.seen = Seen()

    def press(self, text: str = "") -> asyncio.Future[Answer]:
        """Replaces the document by a text, by default the next one, whose last letter is typed, and asks at its end.

        The request before is cancelled.
        """
        text = text or self._texts[next(self._numbers) % len(self._texts)]
        end = _find_end(text)
        edit = self.build_edit(_URI, (0, 0), _find_end(self._shown), text[:-1])
        edit += self.build_edit(
            _URI, (end[0], end[1] - 1), (end[0], end[1] - 1), text[-1]
        )  # a paste gets no suggestion
        cancel = build_message("$/cancelRequest", {"id": self._last}) if self._last in self._waiting else b""
        self._last, request = self.build_request(_URI, end)
        self._shown = text
        answer = self.send(edit + cancel + request, self._last)
        answer.add_done_callback(lambda done: self._check(text, read_text(done.result().result)))
        return answer

    async def type(self, duration_s: float) -> None:
        """Presses keys for so long, and times the echo of each."""
        end = time.monotonic() + duration_s
        while time.monotonic() < end:
            self.press()
            await self.echo()
            await asyncio.sleep(KEY_S)

    async def echo(self) -> None:
        """Times a message that the language server answers by itself, after all messages before it."""
        began_at = time.perf_counter()
        await self._ask("midtoken/echo", None)  # it answers that it does not know it
        self.seen.echo_ms.append(1e3 * (time.perf_counter() - began_at))

    async def wait_until_back(self, within_s: float) -> float | None:
        """Types until a text is shown that the server has completed. Returns how long that took; None if none came."""
        began_at = time.perf_counter()
        self._forget()
        while time.perf_counter() < began_at + within_s:
            answer = self.press()
            await self.echo()
            done, _ = await asyncio.wait([answer], timeout=_ASK_S)
            if done and read_text(answer.result().result):
                return answer.result().ended_at - began_at
            await asyncio.sleep(KEY_S / 2)
        return None

    def _forget(self) -> None:
        """Closes the document and opens it again: then the language server remembers no completion of it."""
        self.write(build_message("textDocument/didClose", {"textDocument": {"uri": _URI}}))
        self._shown = ""
        self.open(_URI, "")

    def _check(self, text: str, found: str) -> None:
        """A text that was cut at a deadline may be shorter."""
        if self._expected and not self._expected.get(text, "").startswith(found):
            self.seen.wrong.append(f"after {text[-9:]!r} came {found!r} and not {self._expected.get(text)!r}")


def read_text(result: Any) -> str:
    """The text of an answer; empty if it suggests nothing."""
    return "".join(item["insertText"] for item in (result or {"items": []})["items"])


def _find_end(text: str) -> tuple[int, int]:
    return text.count("\n"), len(text) - text.rfind("\n") - 1
