"""llama.cpp by the C interface of llama-cpp-python: one model, and one context for all sequences.

A cell of the context has the keys and values of one token. It belongs to one or more of the context's *sequence ids*,
and a row of a pass sees the cells of its own ids. To copy a sequence adds an id to its cells, and moves nothing. A cell
without an id is free.
"""

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
import numpy.typing as npt
from llama_cpp import _ggml

from inference.config import AUTO_DEVICE
from inference.errors import ModelError, OverloadedError, quote

NUM_SEQUENCE_IDS = 256  # the most that llama.cpp has
_MAX_ROWS = 512  # of one pass; more are several
_MAX_OUTPUTS = NUM_SEQUENCE_IDS  # rows of logits in one pass, for which llama.cpp has memory from the beginning
_NO_ROOM = {1, -2}  # what llama_decode returns if it finds no cells, or no memory
_ERROR = 4  # of log levels
_MAX_SAID = 8  # errors
_ON_CPU, _ALL_LAYERS = 0, -1
_ADD_BIAS = ("falcon-h1", "granitehybrid", "nemotron_h", "nemotron_h_moe")  # also where there is none
_UNKNOWN_FAMILY = "unknown model architecture: "  # what llama.cpp says
# LongRoPE has factors for texts up to an original length, and others for longer ones. llama.cpp chooses by the size of
# the context, which has all sequences here. So it gets no limit, and sequences keep to the real one.
_LONG_ROPES = (None, "none", "longrope")  # what files say that have an original length
_NO_LIMIT = 2**31 - 1  # tokens

Logits = npt.NDArray[np.float32]  # [num_rows, vocab_size]


def _listen() -> tuple[Any, list[str]]:
    """A callback that prints nothing, and the list to which it adds errors."""
    said: list[str] = []

    def note(level: int, text: bytes, _data: object) -> None:
        if level == _ERROR and len(said) < _MAX_SAID:
            said.append(text.decode(errors="replace").strip())

    return llama_cpp.llama_log_callback(note), said


_CALLBACK, _SAID = _listen()  # one for all models: llama.cpp has a single one, and it must exist until the process ends


@dataclass(frozen=True, slots=True)
class BatchSpan:
    """Rows of a pass, at positions that follow each other."""

    token_ids: Sequence[int]
    position: int  # of the first
    sequence_ids: Sequence[int]  # that get the cells; all of them have the same tokens before
    row: int | None = None  # of the part's logits, for a single token; None: they are not wanted


class Llama:
    """A model and its context. One thread at a time may use it."""

    def __init__(self, path: Path, device: str) -> None:
        """Loads the weights. Raises ModelError."""
        _SAID.clear()
        llama_cpp.llama_log_set(_CALLBACK, None)
        llama_cpp.llama_backend_init()
        options = llama_cpp.llama_model_default_params()
        options.n_gpu_layers = _ON_CPU if device == "cpu" else _ALL_LAYERS
        devices = _find_devices(device)
        if devices is not None:
            options.devices = ctypes.cast(devices, ctypes.c_void_p)
        self._load(path, options)
        length: int = llama_cpp.llama_model_n_ctx_train(self.model)
        scaling = f"{self.read_metadata('general.architecture')}.rope.scaling."
        original = self.read_metadata(key := f"{scaling}original_context_length")
        if original and self.read_metadata(f"{scaling}type") in _LONG_ROPES:
            length = min(length, int(original))
            options.kv_overrides = _override(key, _NO_LIMIT)
            llama_cpp.llama_model_free(self.model)
            self._load(path, options)
        if self.read_metadata("general.architecture") in _ADD_BIAS and _lacks_bias(path):
            raise ModelError("its convolutions (ssm_conv1d) have no bias, and llama.cpp ends the process without one")
        self.vocabulary = llama_cpp.llama_model_get_vocab(self.model)
        self.vocab_size: int = llama_cpp.llama_vocab_n_tokens(self.vocabulary)
        self.has_state: bool = llama_cpp.llama_model_is_recurrent(self.model) or llama_cpp.llama_model_is_hybrid(
            self.model
        )
        self.num_weights: int = llama_cpp.llama_model_n_params(self.model)
        self.dtype: str = llama_cpp.llama_ftype_name(llama_cpp.llama_model_ftype(self.model)).decode()
        self.max_tokens = length
        # A layer with a window gives a cell that the window of its only id has passed to another token, though the
        # text may be cut back to there. A cell with two ids stays. So each id has a second one, far above it.
        has_windows = llama_cpp.llama_model_n_swa(self.model) > 0
        if has_windows and self.has_state:
            raise ModelError("it has layers with a window beside layers with a recurrent state")
        self.num_ids = NUM_SEQUENCE_IDS // 2 if has_windows else NUM_SEQUENCE_IDS
        self._steps = (0, self.num_ids) if has_windows else (0,)

    def _load(self, path: Path, options: Any) -> None:  # llama_cpp has no types here
        self.model = llama_cpp.llama_model_load_from_file(str(path).encode(), options)
        if not self.model and _UNKNOWN_FAMILY in _explain():
            family = _explain().rpartition(_UNKNOWN_FAMILY)[2].strip("'")
            raise ModelError(
                f"llama.cpp, as of llama-cpp-python {llama_cpp.__version__}, has no family {quote(family)}"
            )
        if not self.model:
            raise ModelError(f"llama.cpp cannot read it: {_explain()} (llama-cpp-python {llama_cpp.__version__})")

    def open_context(self, num_cells: int, num_threads: int, num_ids: int = NUM_SEQUENCE_IDS) -> None:
        """Makes the context, in place of an earlier one. `num_ids`: there is a state for each, if the model has one.

        Raises ModelError if there is no memory for it.
        """
        self._free_context()
        options = llama_cpp.llama_context_default_params()
        options.n_ctx = num_cells
        options.n_batch = options.n_ubatch = _MAX_ROWS
        options.n_seq_max, options.n_outputs_max = num_ids, _MAX_OUTPUTS
        options.kv_unified = options.swa_full = True
        options.n_threads = options.n_threads_batch = num_threads
        options.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED  # it skips the cells of other sequences
        self._context = llama_cpp.llama_init_from_model(self.model, options)
        if not self._context:
            raise ModelError(f"llama.cpp has no memory for the keys and values of {num_cells} tokens: {_explain()}")
        self._memory = llama_cpp.llama_get_memory(self._context)
        if not self._memory:
            raise ModelError("it is an encoder, and does not predict the next token")
        self._batch = _Batch()

    def _free_context(self) -> None:
        if getattr(self, "_context", None):
            llama_cpp.llama_free(self._context)
            self._context = None

    def read_metadata(self, key: str) -> str | None:
        """A value of the file's metadata."""
        buffer = ctypes.create_string_buffer(256)
        size = llama_cpp.llama_model_meta_val_str(self.model, key.encode(), buffer, len(buffer))
        return None if size < 0 else buffer.value.decode(errors="replace")

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, in which nothing is a control token."""
        data = text.encode()
        ids = (llama_cpp.llama_token * (len(data) + 8))()
        count = llama_cpp.llama_tokenize(self.vocabulary, data, len(data), ids, len(ids), False, False)
        return list(ids[: max(count, 0)])

    def copy(self, source: int, target: int, start: int, stop: int) -> None:
        """Adds the id `target` to the cells of `source` at these positions."""
        for step in self._steps:
            llama_cpp.llama_memory_seq_cp(self._memory, source + step, target + step, start, stop)

    def remove(self, sequence_id: int, start: int = 0, stop: int = -1) -> None:
        """Removes an id from its cells at these positions; to the end if `stop` is -1."""
        for step in self._steps:
            llama_cpp.llama_memory_seq_rm(self._memory, sequence_id + step, start, stop)

    def measure_memory(self) -> tuple[int, int]:
        """The bytes of a token's keys and values, and those of a recurrent state, in a context for this."""
        self.open_context(1, 1, 1 + self._steps[-1])
        sizes = []
        for position in range(2):
            list(self.decode([BatchSpan((1,), position, (0,))]))
            sizes.append(int(llama_cpp.llama_state_seq_get_size(self._context, 0)))
        token_nbytes = sizes[1] - sizes[0]
        return max(token_nbytes, 1), sizes[0] - token_nbytes

    def decode(self, segments: Sequence[BatchSpan]) -> Iterator[Logits]:
        """The logits of the rows that want them, pass by pass. They are overwritten by the next one.

        Raises OverloadedError or ModelError. Rows may then have been added to their sequences.
        """
        for num_rows, num_outputs in self._batch.fill(segments, self._steps):
            self._run(num_rows)
            if num_outputs:
                pointer = llama_cpp.llama_get_logits(self._context)
                yield np.ctypeslib.as_array(pointer, (num_outputs, self.vocab_size))
        llama_cpp.llama_synchronize(self._context)

    def _run(self, num_rows: int) -> None:
        _SAID.clear()
        code = llama_cpp.llama_decode(self._context, self._batch.build(num_rows))
        if code in _NO_ROOM:
            raise OverloadedError(
                f"there is no memory left for a forward pass over {num_rows} tokens; try again in a moment"
            )
        if code:
            raise ModelError(f"llama.cpp cannot run a forward pass over {num_rows} tokens ({code}): {_explain()}")

    def __del__(self) -> None:
        self._free_context()
        if getattr(self, "model", None):
            llama_cpp.llama_model_free(self.model)


class _Batch:
    """The rows of a pass, in memory that llama.cpp reads."""

    def __init__(self) -> None:
        self._token_ids, self._positions, self._num_ids = (np.zeros(_MAX_ROWS, np.int32) for _ in range(3))
        self._ids = np.zeros((_MAX_ROWS, NUM_SEQUENCE_IDS), np.int32)
        self._wants = np.zeros(_MAX_ROWS, np.int8)
        steps = np.arange(_MAX_ROWS, dtype=np.uint64) * np.uint64(self._ids.strides[0])
        self._rows_of_ids = np.uint64(self._ids.ctypes.data) + steps

    def fill(self, segments: Sequence[BatchSpan], steps: Sequence[int]) -> Iterator[tuple[int, int]]:
        """The numbers of rows and of rows of logits, each time when a pass is full. `steps`: from an id to its ids."""
        num_rows = num_outputs = 0
        for segment in segments:
            ids = [each + step for step in steps for each in segment.sequence_ids]
            for first in range(0, len(segment.token_ids), _MAX_ROWS):
                token_ids = segment.token_ids[first : first + _MAX_ROWS]
                if num_rows + len(token_ids) > _MAX_ROWS or num_outputs == _MAX_OUTPUTS:
                    yield num_rows, num_outputs
                    num_rows = num_outputs = 0
                self._write(num_rows, token_ids, segment.position + first, ids)
                self._wants[num_rows : num_rows + len(token_ids)] = segment.row is not None
                num_rows += len(token_ids)
                num_outputs += len(token_ids) * (segment.row is not None)
        if num_rows:
            yield num_rows, num_outputs

    def _write(self, start: int, token_ids: Sequence[int], position: int, sequence_ids: Sequence[int]) -> None:
        rows = slice(start, start + len(token_ids))
        self._token_ids[rows] = token_ids
        self._positions[rows] = range(position, position + len(token_ids))
        self._num_ids[rows] = len(sequence_ids)
        self._ids[rows, : len(sequence_ids)] = sequence_ids

    def build(self, num_rows: int) -> Any:  # llama_cpp has no types here
        """The structure that llama.cpp takes."""
        return llama_cpp.llama_batch(
            n_tokens=num_rows,
            token=_point(self._token_ids, ctypes.c_int32),
            pos=_point(self._positions, ctypes.c_int32),
            n_seq_id=_point(self._num_ids, ctypes.c_int32),
            seq_id=_point(self._rows_of_ids, ctypes.POINTER(ctypes.c_int32)),
            logits=_point(self._wants, ctypes.c_int8),
        )


def _point(array: npt.NDArray[Any], kind: Any) -> Any:  # ctypes
    return ctypes.cast(array.ctypes.data, ctypes.POINTER(kind))


def _override(key: str, value: int) -> Any:  # ctypes
    """One number of the file's metadata is another one. The list ends with an empty key."""
    overrides = (llama_cpp.llama_model_kv_override * 2)()
    overrides[0].tag, overrides[0].key = llama_cpp.LLAMA_KV_OVERRIDE_TYPE_INT, key.encode()
    overrides[0].value.val_i64 = value
    return overrides


class _GgufOptions(ctypes.Structure):
    """Of a file of which the metadata are read only."""

    _fields_ = (("no_alloc", ctypes.c_bool), ("context", ctypes.c_void_p))


def _lacks_bias(path: Path) -> bool:
    """Whether the file, or the first of several, has a convolution without a bias."""
    lib = _ggml.libggml
    lib.gguf_init_from_file.restype, lib.gguf_get_tensor_name.restype = ctypes.c_void_p, ctypes.c_char_p
    lib.gguf_get_n_tensors.restype = ctypes.c_int64
    lib.gguf_get_tensor_name.argtypes = (ctypes.c_void_p, ctypes.c_int64)
    file = ctypes.c_void_p(lib.gguf_init_from_file(str(path).encode(), _GgufOptions(True, None)))
    names = {lib.gguf_get_tensor_name(file, at) for at in range(lib.gguf_get_n_tensors(file))}
    lib.gguf_free(file)
    ends = (b".ssm_conv1d.weight", b".ssm_conv1d.bias")
    weights, biases = ({name.removesuffix(end) for name in names if name.endswith(end)} for end in ends)
    return weights > biases


def _explain() -> str:
    """Returns the first error that llama.cpp has reported."""
    return _SAID[0] if _SAID else "it says no reason"


def _find_devices(name: str) -> Any:
    """The devices of this name for llama.cpp, ended by a null; None for all that it has. Raises ModelError.

    A name is that of a device, as CUDA0, or of a kind of them, as cuda.
    """
    if name == AUTO_DEVICE:
        return None
    lib = _ggml.libggml
    lib.ggml_backend_dev_get.restype = lib.ggml_backend_dev_backend_reg.restype = ctypes.c_void_p
    lib.ggml_backend_dev_name.restype = lib.ggml_backend_reg_name.restype = ctypes.c_char_p
    lib.ggml_backend_dev_count.restype = ctypes.c_size_t
    devices = [
        ctypes.c_void_p(lib.ggml_backend_dev_get(ctypes.c_size_t(at))) for at in range(lib.ggml_backend_dev_count())
    ]
    named: dict[str, list[Any]] = {}
    for device in devices:
        kind = ctypes.c_void_p(lib.ggml_backend_dev_backend_reg(device))
        for each in {lib.ggml_backend_dev_name(device), lib.ggml_backend_reg_name(kind)}:
            named.setdefault(each.decode().lower(), []).append(device)
    if name != "cpu" and name.lower() not in named:
        raise ModelError(
            f"the device {quote(name)} cannot be used: this llama-cpp-python was built for {', '.join(named)}"
        )
    chosen = [] if name == "cpu" else named[name.lower()]
    return (ctypes.c_void_p * (len(chosen) + 1))(*chosen, None)
