"""In which order an engine with one sequence a step answers requests that wait at the same time."""

import functools
import threading
from contextlib import closing

from inference.protocol.completion import CompletionRequest
from tests.support.engine_bench import ScriptedBench, assert_soon, build_scripted_bench
from tests.support.sinks import CollectingSink, complete

_LONG = "".join(f"value_{number} = {number}\n" for number in range(40))


def _build() -> ScriptedBench:
    bench = build_scripted_bench(max_tokens=1024)
    bench.model.runs_together = False
    return bench


def _find_order(bench: ScriptedBench, requests: dict[str, CompletionRequest]) -> list[str]:
    """The names of the requests, in the order of their ends. They are submitted while another one is running."""
    is_running, may_go_on = threading.Event(), threading.Event()

    def block(_: object) -> None:
        is_running.set()
        assert_soon(may_go_on)

    bench.model.before_forward = block
    blocker = CollectingSink()
    bench.engine.submit(CompletionRequest("x = ", max_tokens=1, tenant="blocker"), blocker)
    assert_soon(is_running)
    order: list[str] = []
    sinks = []
    for name, request in requests.items():
        sinks.append(CollectingSink(functools.partial(order.append, name)))
        bench.engine.submit(request, sinks[-1])
    may_go_on.set()
    for sink in (blocker, *sinks):
        sink.wait()
    return list(dict.fromkeys(order))


def test_one_whose_text_is_remembered_comes_before_a_newer_one_that_has_much_to_read() -> None:
    bench = _build()
    with closing(bench.engine):
        warm = CompletionRequest(_LONG + "y = ", max_tokens=2, tenant="a", document="a")
        cold = CompletionRequest("# another file\n" + _LONG, max_tokens=2, tenant="b", document="b")
        complete(bench.engine, warm)
        complete(bench.engine, CompletionRequest("y", max_tokens=8, tenant="b"))  # so that neither is behind

        assert _find_order(bench, {"warm": warm, "cold": cold}) == ["warm", "cold"]


def test_of_two_that_have_much_to_read_the_newer_one_comes_first() -> None:
    bench = _build()
    with closing(bench.engine):
        older = CompletionRequest(_LONG + "y = ", max_tokens=2, tenant="a", document="a")
        newer = CompletionRequest("# another file\n" + _LONG, max_tokens=2, tenant="b", document="b")

        assert _find_order(bench, {"older": older, "newer": newer}) == ["newer", "older"]


def test_one_that_cannot_be_read_in_time_comes_last() -> None:
    bench = _build()

    def take_a_second(_: object) -> None:
        bench.clock.now += 1.0

    bench.model.before_forward = take_a_second
    with closing(bench.engine):
        complete(bench.engine, CompletionRequest(_LONG, max_tokens=1, tenant="c"))  # 300 tokens in a second
        hasty = CompletionRequest("# another file\n" + _LONG, max_tokens=2, tenant="a", deadline_ms=10)
        patient = CompletionRequest("# a third file\n" + _LONG, max_tokens=2, tenant="b", deadline_ms=60_000)

        assert _find_order(bench, {"hasty": hasty, "patient": patient}) == ["patient", "hasty"]
