from inference.engine.engine import Heartbeat
from tests.support.engine_bench import Clock


def test_heartbeat_is_the_time_since_the_last_beat() -> None:
    clock = Clock()
    heartbeat = Heartbeat(clock)
    clock.now += 5
    heartbeat.beat()
    clock.now += 0.25

    assert heartbeat.measure_ms() == 250


def test_heartbeat_is_zero_while_the_loop_rests() -> None:
    clock = Clock()
    heartbeat = Heartbeat(clock)
    heartbeat.mark_idle()
    clock.now += 5

    assert heartbeat.measure_ms() == 0


def test_heartbeat_after_a_rest_counts_from_the_start_of_the_work() -> None:
    clock = Clock()
    heartbeat = Heartbeat(clock)
    heartbeat.mark_idle()
    clock.now += 5
    heartbeat.beat()
    clock.now += 1

    assert heartbeat.measure_ms() == 1000


def test_heartbeat_of_an_ended_loop_exceeds_any_limit() -> None:
    heartbeat = Heartbeat(Clock())
    heartbeat.mark_idle()
    heartbeat.end()

    assert heartbeat.measure_ms() > 1e3 * 3600 * 24 * 365
