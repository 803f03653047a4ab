"""The files that a benchmark writes."""

import json
from pathlib import Path

from benchmarks.measures.report import RESULTS_DIR, Row, read_figures, write_report
from inference.serving.import_root import IMPORT_ROOT


def test_the_results_folder_is_beside_the_benchmarks() -> None:
    assert RESULTS_DIR == IMPORT_ROOT / "benchmarks" / "results"


def test_a_report_contains_the_rows_and_figures(tmp_path: Path) -> None:
    row: Row = {"method": "ours", "ms": 1.5}
    path = write_report("speed", [row], {"ms": 1.5}, device="abacus", folder=tmp_path)
    written = json.loads(path.read_text())
    assert path == tmp_path / "speed.json"
    assert (written["rows"], written["figures"], written["device"]) == ([row], {"ms": 1.5}, "abacus")


def test_figures_are_read_back(tmp_path: Path) -> None:
    write_report("measured", [], {"ms": 1.5, "met": True, "unknown": None}, folder=tmp_path)

    assert read_figures("measured", tmp_path) == {"ms": 1.5, "met": True, "unknown": None}
    assert read_figures("never measured", tmp_path) == {}
