"""The replay's editor with the real language server, whose model answers by rules."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.corpora.typing import Key, KeyKind, Session
from benchmarks.measures.replay_editor import replay

_TEXT = "a = 1\n\nb = 2\n"


def _key(kind: KeyKind, start: int, end: int, text: str, cursor: int, document: int = 0, gap_s: float = 0.0) -> Key:
    return Key(document, kind, start, end, text, cursor, gap_s)


def _session(*keys: Key) -> Session:
    return Session((_TEXT, "x😀y"), keys)


async def _play(
    folder: Path, session: Session, rules: Sequence[dict[str, Any]], max_gap_s: float = 60.0
) -> tuple[list[int | None], list[dict[str, str]]]:
    """How many suggestions each key got, None without an answer; and the events at the model."""
    script, log = folder / "script.json", folder / "log"
    warm = {"ends_with": "", "texts": [""]}  # an empty document is asked for until the server is connected
    script.write_text(json.dumps({"rules": [*rules, warm], "log": str(log)}))
    pressed = await replay([sys.executable, "-m", "tests.support.scripted_server", str(script)], session, max_gap_s)
    assert all(key.sent_at <= key.answer.ended_at for key in pressed)
    counts = [key.answer.result and len(key.answer.result["items"]) for key in pressed]
    return counts, [json.loads(line) for line in log.read_text().splitlines()]


async def test_the_language_server_sees_each_key_as_the_session_has_it(tmp_path: Path) -> None:
    session = _session(
        _key(KeyKind.LETTER, 6, 6, "c", 7),
        _key(KeyKind.NEWLINE, 7, 7, "\n    ", 12),
        _key(KeyKind.BACKSPACE, 11, 12, "", 11),
        _key(KeyKind.JUMP, 0, 0, "", 2, document=1),
        _key(KeyKind.LETTER, 2, 2, "z", 3, document=1),
        _key(KeyKind.JUMP, 0, 0, "", 1),
        _key(KeyKind.DELETE, 6, 12, "", 6, gap_s=0.5),
    )

    counts, events = await _play(tmp_path, session, [])

    asked = [(event["prefix"], event["suffix"]) for event in events if event["event"] == "started" and event["prefix"]]
    assert asked == [(moment.prefix, moment.suffix) for moment in session.iter_edits()]
    assert counts == [0] * 5
    ahead = [(event["prefix"], event["suffix"]) for event in events if event["event"] == "prefetched"]
    assert ahead[-1] == asked[-1]  # what was selected is as good as deleted


async def test_the_next_key_cancels_a_request_after_the_longest_gap(tmp_path: Path) -> None:
    following = _key(KeyKind.LETTER, 2, 2, "d", 3, document=1, gap_s=0.39)
    rules = [{"ends_with": "c", "texts": ["never"], "delay_s": 600}]

    counts, events = await _play(tmp_path, _session(_key(KeyKind.LETTER, 6, 6, "c", 7), following), rules, 0.2)

    assert counts == [None, 0]
    assert [event["event"] for event in events if event.get("prefix") == "a = 1\nc"] == ["started", "cancelled"]
