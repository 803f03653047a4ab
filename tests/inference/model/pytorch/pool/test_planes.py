import pytest
import torch

from inference.errors import OverloadedError
from inference.model.pytorch.pool import LayerShape, Planes

_CPU = torch.device("cpu")
_LAYERS = [LayerShape(2, 4, 3), LayerShape(2, 3, 3), LayerShape(1, 4, 4)]


def _build(capacity: int = 5) -> Planes:
    """Planes in which each layer's keys and values are filled with a number of their own."""
    planes = Planes(_LAYERS, torch.float32, _CPU, capacity)
    for layer in range(len(_LAYERS)):
        keys, values = planes.find(layer)
        keys.fill_(2 * layer)
        values.fill_(2 * layer + 1)
    return planes


def _read(planes: Planes, num_slots: int) -> list[float]:
    """The number of each plane."""
    found = []
    for layer, shape in enumerate(_LAYERS):
        for states, dim in zip(planes.find(layer), (shape.key_dim, shape.value_dim), strict=True):
            assert states.shape == (shape.num_kv_heads, planes.capacity, dim)
            [number] = set(states[:, :num_slots].flatten().tolist())
            found.append(number)
    return found


def test_keys_and_values_of_each_layer_have_a_place_and_a_shape_of_their_own() -> None:
    assert _read(_build(), 5) == [0, 1, 2, 3, 4, 5]


def test_layers_of_one_shape_are_in_one_tensor() -> None:
    assert len(Planes([LayerShape(2, 4, 4)] * 3, torch.float32, _CPU, 5)._tensors) == 1


def test_the_memory_of_a_slot_is_that_of_a_token_in_all_layers() -> None:
    assert Planes(_LAYERS, torch.float16, _CPU, 5).slot_nbytes == 2 * (2 * 7 + 2 * 6 + 8)


def test_a_larger_capacity_keeps_what_is_there() -> None:
    planes = _build()

    planes.grow(9)

    assert planes.capacity == 9
    assert _read(planes, 5) == [0, 1, 2, 3, 4, 5]


def test_planes_without_memory_are_an_overloaded_error() -> None:
    with pytest.raises(OverloadedError, match="keys and values of"):
        _build(1 << 48)
