"""The file with the counts of all editors."""

import asyncio
import multiprocessing
from datetime import date
from pathlib import Path

import pytest

from lsp_server import usage
from lsp_server.usage import Counts, UsageFile
from midtoken.cli import main

_DAY = date(2026, 11, 24)


async def _write(path: Path, times: int, day: date = _DAY) -> None:
    file = UsageFile(path, lambda: day)
    for _ in range(times):
        file.add("python", Counts(shown=1))
        file.add("rust", Counts(word=2))
        file.write()


def _write_often(path: Path) -> None:
    asyncio.run(_write(path, 200))


def test_editors_that_write_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "stats" / "counts.jsonl"
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write_often, args=(path,)) for _ in range(3)]
    for each in writers:
        each.start()
    for each in writers:
        each.join()

    assert UsageFile(path, lambda: _DAY).read() == {
        (_DAY, "python"): Counts(shown=600),
        (_DAY, "rust"): Counts(word=1200),
    }


async def test_it_is_written_after_a_while_and_not_for_each_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "_WRITE_S", 0.01)
    file = UsageFile(path := tmp_path / "stats" / "counts.jsonl", lambda: _DAY)
    file.add("python", Counts(shown=1))
    file.add("python", Counts(shown=1))
    assert not path.exists()
    while not path.exists():
        await asyncio.sleep(0.01)
    assert len(path.read_text().splitlines()) == 1
    assert [each.stat().st_mode & 0o077 for each in (path, path.parent)] == [0, 0]


async def test_what_cannot_be_written_is_kept_until_it_can(tmp_path: Path) -> None:
    (tmp_path / "stats").write_text("a file in the folder's place")
    file = UsageFile(tmp_path / "stats" / "counts.jsonl", lambda: _DAY)
    file.add("python", Counts(shown=1))
    file.write()
    (tmp_path / "stats").unlink()
    file.add("python", Counts(shown=1))
    file.write()
    assert file.read() == {(_DAY, "python"): Counts(shown=2)}


@pytest.mark.parametrize(
    "line",
    [
        *("", "{", "[]", "null", '"x"', "{}", "\0", 5000 * "["),
        *('{"day": "x", "language": "a"}', '{"day": "2026-11-24"}', '{"day": "2026-11-24", "language": "[/]"}'),
        *(f'{{"day": "2026-11-24", "language": "python", "shown": {number}}}' for number in ('"x"', "1e999", "null")),
    ],
)
async def test_a_damaged_line_does_not_count_and_the_others_do(tmp_path: Path, line: str) -> None:
    path = tmp_path / "stats" / "counts.jsonl"
    await _write(path, 1)
    with path.open("a") as file:
        file.write(line + "\n")
    await _write(path, 1)
    assert UsageFile(path, lambda: _DAY).read() == {
        (_DAY, "python"): Counts(shown=2),
        (_DAY, "rust"): Counts(word=4),
    }


async def test_the_last_days_are_those_that_are_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "stats" / "counts.jsonl"
    for day in (1, 17, 18, 24):
        await _write(path, 1, date(2026, 11, day))
    file = UsageFile(path, lambda: _DAY)
    assert [day.day for day, _ in file.read(7, "rust")] == [18, 24]
    assert [day.day for day, _ in file.read(1, "rust")] == [24]


def test_the_command_shows_and_deletes_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "stats" / "counts.jsonl"
    asyncio.run(_write(path, 3, date.today()))
    asyncio.run(_write(path, 1, date(2001, 1, 1)))
    folder = f"--state-dir={tmp_path}"

    assert main(["stats", folder, "--language=rust"]) == 0
    assert "rust" in capsys.readouterr().out
    main(["stats", folder, "--days=36500"])
    assert "\nall              4   " in capsys.readouterr().out
    main(["stats", folder, "--delete"])
    main(["stats", folder])
    assert "No suggestions were counted" in capsys.readouterr().out
    assert not path.exists()
