"""A model folder for onnxruntime: converted or mapped from the store, and checked; or why it cannot be run that way."""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime

from inference.config import EngineConfig
from inference.errors import ModelError
from inference.healing.loaded_tokenizer import load_tokenizer
from inference.model.language_model import LoadedModel
from inference.model.numpy_sampler import NumpySampler
from inference.model.onnx.decoder_config import DecoderConfig, read_decoder_config
from inference.model.onnx.graph import Graph, build_graph
from inference.model.onnx.graph_store import CONSTANTS_NAME, GRAPH_NAME, GraphStore, compute_key
from inference.model.onnx.model import OnnxModel
from inference.model.onnx.trial import check_model
from inference.model.onnx.weights import Precision, Weights
from inference.model_folder import find_weight_files
from trie_cache.hot_prefixes import HotPrefixCache

_FATAL_ONLY = 4  # of log levels; errors are raised
_BFLOAT16 = 16  # of onnx.TensorProto.DataType
_log = logging.getLogger(__name__)


def _open_session(
    model: str | bytes, num_threads: int, constants: Mapping[str, npt.NDArray[Any]] = MappingProxyType({})
) -> onnxruntime.InferenceSession:
    """The session of a graph in a file, with its constants beside it, or of one in memory.

    The arrays must exist as long as the session. Raises what onnxruntime raises.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = num_threads
    options.inter_op_num_threads = 1
    options.enable_mem_pattern = False  # it would keep a plan for each length of a sequence
    options.log_severity_level = _FATAL_ONLY
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # the cores belong to others as well
    options.add_external_initializers(list(constants), [_to_value(array) for array in constants.values()])
    return onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"])


def _to_value(array: npt.NDArray[Any]) -> onnxruntime.OrtValue:
    if array.dtype.name == "bfloat16":
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(array.view(np.uint16), _BFLOAT16)
    return onnxruntime.OrtValue.ortvalue_from_numpy(array)


def find_folder_obstacle(folder: Path) -> str | None:
    """Why the model in `folder` cannot be run on onnxruntime, as far as names and config.json tell; None if it can."""
    try:
        if any(path.suffix != ".safetensors" for path in find_weight_files(folder)):
            return "its weights are not in safetensors files"
        read_decoder_config(_read_config(folder))
    except ModelError as error:
        return str(error)
    return None


def load_onnx_model(config: EngineConfig) -> LoadedModel[OnnxModel]:
    """The model in `config.model_dir`. Raises ModelError, with the reason, if it cannot be run rightly."""
    obstacle = find_folder_obstacle(config.model_dir)
    if obstacle is not None:
        raise ModelError(f"cannot load the model in {config.model_dir}: {obstacle}")
    decoder = read_decoder_config(_read_config(config.model_dir))
    tokenizer = load_tokenizer(config.model_dir, decoder.vocab_size)
    sampler = NumpySampler(tokenizer.vocabulary, HotPrefixCache(tokenizer.trie), tokenizer.trie)
    return LoadedModel(load_decoder(config, decoder, sampler), tokenizer)


def load_decoder(config: EngineConfig, decoder: DecoderConfig, sampler: NumpySampler) -> OnnxModel:
    """The decoder in `config.model_dir`, with a sampler for its tokens. Raises ModelError.

    `config.dtype` is the name of a `Precision`; `inference.model.loader` has chosen it.
    Built graphs are kept in `config.graph_dir`; if it is None, the graph is built in memory.
    """
    precision = Precision(config.dtype)
    try:
        with Weights(config.model_dir, decoder) as weights:
            graph = build_graph(decoder, weights, precision, CONSTANTS_NAME)
            loader = _Loader(decoder, weights, precision, graph, sampler, config.num_threads)
            store = _open_store(config.graph_dir)
            return loader.load_stored(store) if store else loader.load_in_memory()
    except ModelError as error:
        raise ModelError(f"cannot load the model in {config.model_dir}: {error}") from error


def _read_config(folder: Path) -> dict[str, Any]:
    try:
        content = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise ModelError("its config.json is missing or cannot be read") from None
    if not isinstance(content, dict):
        raise ModelError("its config.json is not a table")
    return content


def _open_store(folder: Path | None) -> GraphStore | None:
    if folder is None:
        return None
    try:
        return GraphStore(folder)
    except OSError as error:
        _log.warning("converted models cannot be kept: %s", error)
        return None


@dataclass(frozen=True, slots=True)
class _Loader:
    """Loads one model, whose graph is built, but not its constants."""

    decoder: DecoderConfig
    weights: Weights
    precision: Precision
    graph: Graph
    sampler: NumpySampler
    num_threads: int

    def load_stored(self, store: GraphStore) -> OnnxModel:
        """Maps the constants from the store, and computes them before if necessary."""
        key = compute_key(self.graph, self.weights.paths)
        path = store.find(key)
        if path is not None:
            try:
                return self._open(path)
            except Exception as error:  # onnxruntime has an exception for each of its codes, and documents none
                _log.warning("the stored graph %s cannot be opened (%s)", path, type(error).__name__)
        try:
            draft = store.write_draft(self.graph)
        except OSError as error:
            _log.warning("the converted model cannot be kept: %s", error)
            return self.load_in_memory()
        try:
            model = self._check(self._open(draft / GRAPH_NAME))
        except BaseException:
            store.discard(draft)
            raise
        store.publish(draft, key)
        return model

    def load_in_memory(self) -> OnnxModel:
        """Computes the constants in memory, of which that needs twice as much."""
        constants = {constant.name: value for constant, value in self.graph.iter_constants()}
        session = _open_session(self.graph.model.SerializeToString(), self.num_threads, constants)
        return self._check(OnnxModel(session, self.decoder, self.sampler, constants))

    def _open(self, path: Path) -> OnnxModel:
        return OnnxModel(_open_session(str(path), self.num_threads), self.decoder, self.sampler)

    def _check(self, model: OnnxModel) -> OnnxModel:
        check_model(model, self.weights, self.precision)
        return model
