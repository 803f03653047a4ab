"""The files that a benchmark writes."""

import json
from pathlib import Path

from benchmarks.measures.report import RESULTS_DIR, Row, write_report
from inference.serving.import_root import IMPORT_ROOT


def test_the_results_folder_is_beside_the_benchmarks() -> None:
    assert RESULTS_DIR == IMPORT_ROOT / "benchmarks" / "results"


def test_a_report_contains_the_rows_and_figures(tmp_path: Path) -> None:
    row: Row = {"method": "ours", "ms": 1.5}
    path = write_report("speed", [row], {"ms": 1.5}, device="abacus", folder=tmp_path)
    written = json.loads(path.read_text())
    assert path == tmp_path / "speed.json"
    assert (written["rows"], written["figures"], written["device"]) == ([row], {"ms": 1.5}, "abacus")
