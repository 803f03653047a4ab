import pytest

from inference.model.language_model import Sampling


@pytest.mark.parametrize(("temperature", "is_greedy"), [(0.0, True), (0.01, False), (1.0, False)])
def test_only_temperature_zero_is_greedy(temperature: float, is_greedy: bool) -> None:
    assert Sampling(temperature, top_p=0.5).is_greedy is is_greedy
