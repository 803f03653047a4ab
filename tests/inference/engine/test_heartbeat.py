from inference.engine.heartbeat import Heartbeat
from tests.support.engine_bench import Clock


def test_it_grows_from_the_last_beat_on() -> None:
    clock = Clock()
    heartbeat = Heartbeat(clock)
    clock.now += 5
    heartbeat.beat()
    clock.now += 0.25

    assert heartbeat.measure_ms() == 250


def test_it_is_zero_while_the_loop_rests() -> None:
    clock = Clock()
    heartbeat = Heartbeat(clock)
    heartbeat.mark_idle()
    clock.now += 5

    assert heartbeat.measure_ms() == 0


def test_work_after_a_rest_counts_from_its_own_beginning() -> None:
    clock = Clock()
    heartbeat = Heartbeat(clock)
    heartbeat.mark_idle()
    clock.now += 5
    heartbeat.beat()
    clock.now += 1

    assert heartbeat.measure_ms() == 1000


def test_a_loop_that_has_ended_is_beyond_any_limit_even_if_it_was_resting() -> None:
    heartbeat = Heartbeat(Clock())
    heartbeat.mark_idle()
    heartbeat.end()

    assert heartbeat.measure_ms() > 1e3 * 3600 * 24 * 365
