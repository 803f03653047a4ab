"""The distributions of a model before each byte of a text, and the time to compute them."""

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Walk:
    """One distribution before each byte of a text. If a time limit was reached, the last bytes have none."""

    text: bytes
    rows: npt.NDArray[np.float32]  # [num_bytes, 257] natural logarithms: 256 bytes, then the end of the text
    cpu_s: npt.NDArray[np.float64]  # [num_bytes] processor time from the start of the text to each byte
    wall_s: npt.NDArray[np.float64]  # [num_bytes] wall time, likewise
    failure: str | None = None  # why the rows end, if it is an error

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def bits_per_byte(self) -> float:
        """Mean surprisal; infinite after a failure."""
        if self.failure is not None:
            return math.inf
        read = np.frombuffer(self.text, np.uint8)[: len(self)]
        return -float(self.rows[np.arange(len(self)), read].mean(dtype=np.float64)) / math.log(2)

    @property
    def bytes_per_cpu_s(self) -> float:
        return len(self) / float(self.cpu_s[-1])

    @property
    def bytes_per_wall_s(self) -> float:
        return len(self) / float(self.wall_s[-1])

    def cut(self, num_bytes: int) -> "Walk":
        """Returns the walk over the first `num_bytes`, for comparison with one that ended there."""
        failure = self.failure if num_bytes > len(self) else None
        rows, cpu_s, wall_s = self.rows[:num_bytes], self.cpu_s[:num_bytes], self.wall_s[:num_bytes]
        return replace(self, text=self.text[:num_bytes], rows=rows, cpu_s=cpu_s, wall_s=wall_s, failure=failure)
