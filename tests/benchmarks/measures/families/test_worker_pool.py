"""Worker processes that hang or die."""

import os
import time

from benchmarks.measures.families.worker_pool import Lost, run_in_workers


def _work(item: str) -> str:
    if item == "die":
        os._exit(3)
    if item == "hang":
        time.sleep(600)
    return item.upper()


def test_a_worker_that_dies_costs_only_its_item() -> None:
    results = dict(run_in_workers(_work, ["a", "die", "b", "c"], num_workers=2, max_seconds=100))

    assert results == {"a": "A", "die": Lost("its process ended with the exit code 3"), "b": "B", "c": "C"}


def test_a_worker_that_hangs_is_killed() -> None:
    results = list(run_in_workers(_work, ["hang", "hang"], num_workers=1, max_seconds=0.2))

    assert results == [("hang", Lost("took more than 0.2 seconds"))] * 2


def test_no_items_need_no_workers() -> None:
    assert list(run_in_workers(_work, [], num_workers=2, max_seconds=1)) == []
