import pytest

from inference.engine.scheduler import ReadingSpeed


def test_nothing_is_predicted_before_a_measurement() -> None:
    assert ReadingSpeed().predict_s(1000) == 0.0


def test_small_passes_say_nothing() -> None:
    speed = ReadingSpeed()
    speed.note(63, 1.0)

    assert speed.predict_s(1000) == 0.0


def test_the_prediction_follows_the_passes() -> None:
    speed = ReadingSpeed()
    speed.note(100, 1.0)
    assert speed.predict_s(50) == pytest.approx(0.5)
    speed.note(100, 2.0)
    assert 0.5 < speed.predict_s(50) < 1.0
    for _ in range(100):
        speed.note(200, 4.0)

    assert speed.predict_s(50) == pytest.approx(1.0)
