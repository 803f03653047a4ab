"""The memory of keys and values that onnxruntime reads and writes in place."""

from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime

from inference.errors import OverloadedError
from inference.model.onnx.decoder_config import DecoderConfig

Tables = tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]  # cosines and sines of positions


class RowBuffer:
    """The keys and values of some tokens, a row for each token, bound to the inputs and outputs of a session."""

    def __init__(self, session: onnxruntime.InferenceSession, config: DecoderConfig, capacity: int) -> None:
        """Allocates `capacity` rows. Raises OverloadedError."""
        self._config = config
        self.binding: Any = session.io_binding()  # onnxruntime has no types
        self.last_key = np.zeros(1, np.int32)  # inputs of the graph; their values are written before each run
        self.num_keys = np.zeros((), np.int32)
        bind(self.binding, "last_key", self.last_key)
        bind(self.binding, "num_keys", self.num_keys)
        self._set_planes(self._allocate(capacity))

        self._tables: Tables | None = None

    planes: npt.NDArray[np.float32]  # [2 * num_layers, num_kv_heads, capacity, head_dim]: keys, values of each layer

    @property
    def capacity(self) -> int:
        """The number of rows."""
        return self.planes.shape[2]

    def bind_tables(self, tables: Tables) -> None:
        """Lets the session read these tables."""
        if self._tables is not tables:
            self._tables = tables  # keeps the arrays alive
            bind(self.binding, "cosines", tables[0])
            bind(self.binding, "sines", tables[1])

    def grow(self, capacity: int, num_used: int) -> None:
        """Increases the capacity; the first `num_used` rows stay. Raises OverloadedError, with nothing changed."""
        planes = self._allocate(capacity)
        planes[:, :, :num_used] = self.planes[:, :, :num_used]
        self._set_planes(planes)

    def _allocate(self, capacity: int) -> npt.NDArray[np.float32]:
        config = self._config
        try:
            return np.empty((2 * config.num_layers, config.num_kv_heads, capacity, config.head_dim), np.float32)
        except MemoryError as error:
            raise OverloadedError(
                f"there is no memory left for the keys and values of {capacity} tokens; try again in a moment"
            ) from error

    def _set_planes(self, planes: npt.NDArray[np.float32]) -> None:
        self.planes = planes
        for number, plane in enumerate(planes[:, None]):
            bind(self.binding, f"past_{number}", plane)
            bind_output(self.binding, f"present_{number}", plane)


def bind(binding: Any, name: str, array: npt.NDArray[Any]) -> None:
    """Gives an input of a session the memory of `array`, which must exist until the run ends."""
    binding.bind_input(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)


def bind_output(binding: Any, name: str, array: npt.NDArray[Any]) -> None:
    """Lets a session write an output into `array`, which must exist until the run ends."""
    binding.bind_output(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
