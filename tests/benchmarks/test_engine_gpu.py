"""The prepared run for a GPU, rehearsed on the CPU with tiny shapes."""

from benchmarks.engine_gpu import PARTS, TARGETS
from benchmarks.measures.report import iter_found


def test_the_whole_run_is_rehearsed_and_gives_all_figures() -> None:
    found = [each for measure in PARTS.values() for each in iter_found(measure(True))]
    figures = {name: value for each in found for name, value in each.figures.items()}

    assert all(figures[target.figure] is not None for target in TARGETS)
    assert figures["right_wrong_float32"] == 0
