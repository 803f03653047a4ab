from pathlib import Path

import pytest

from benchmarks.measures.checkpoint import measure_each


@pytest.mark.parametrize(
    ("commit", "cut_off", "num_measured"), [("abc", "", 3), ("abc", '{"sq', 3), ("abc+", "", 5), ("other", "", 5)]
)
def test_an_ended_run_goes_on_where_it_was_with_the_same_code(
    commit: str, cut_off: str, num_measured: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    measured = list[int]()

    def measure(item: int) -> dict[str, int]:
        measured.append(item)
        return {"square": item**2}

    ended = measure_each("squares", range(5), measure, commit.replace("other", "abc"))
    assert [next(ended) for _ in range(2)] == [{"square": 0}, {"square": 1}]
    [path] = Path("build/checkpoints").iterdir()
    path.write_text(path.read_text() + cut_off)
    measured.clear()

    found = [*measure_each("squares", range(5), measure, commit)]

    assert found == [{"square": item**2} for item in range(5)]
    assert len(measured) == num_measured
    assert not Path(f"build/checkpoints/squares-5-{commit}.jsonl").exists()
