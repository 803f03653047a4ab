"""Loads a model folder for the runner on onnxruntime, or says why the folder cannot be run that way."""

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inference.config import EngineConfig
from inference.errors import ModelError
from inference.model.onnx.decoder_config import DecoderConfig, find_obstacle, read_decoder_config
from inference.model.onnx.graph import Graph, build_graph
from inference.model.onnx.graph_store import CONSTANTS_NAME, GRAPH_NAME, GraphStore, compute_key
from inference.model.onnx.precision import Precision, read_precision
from inference.model.onnx.runner import OnnxRunner
from inference.model.onnx.session import build_session, open_session
from inference.model.onnx.trial import check_runner
from inference.model.onnx.weights import Weights, find_weight_files

_log = logging.getLogger(__name__)


def find_folder_obstacle(folder: Path) -> str | None:
    """Why the model in `folder` cannot be run on onnxruntime, as far as names and config.json tell; None if it can."""
    if (folder / "adapter_config.json").exists():
        return "it has an adapter (adapter_config.json), which changes the weights"
    try:
        find_weight_files(folder)
        return find_obstacle(_read_config(folder))
    except ModelError as error:
        return str(error)


def load_onnx_runner(config: EngineConfig, cache_folder: Path | None) -> OnnxRunner:
    """A runner for the model in `config.model_dir`. Raises ModelError, with the reason, if it cannot be run rightly.

    `cache_folder`: where built graphs are kept; None builds the graph in memory.
    """
    folder, precision = config.model_dir, read_precision(config.dtype)
    obstacle = find_folder_obstacle(folder)
    if obstacle is not None:
        raise ModelError(f"cannot load the model in {folder}: {obstacle}")
    decoder = read_decoder_config(_read_config(folder))
    try:
        with Weights(folder, decoder) as weights:
            graph = build_graph(decoder, weights, precision, CONSTANTS_NAME)
            loader = _Loader(decoder, weights, precision, graph, config.num_threads)
            store = _open_store(cache_folder)
            return loader.load_stored(store) if store else loader.load_in_memory()
    except ModelError as error:
        raise ModelError(f"cannot load the model in {folder}: {error}") from error


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
    num_threads: int

    def load_stored(self, store: GraphStore) -> OnnxRunner:
        """Maps the constants from the store, and computes them before if necessary."""
        key = compute_key(self.graph, self.weights.paths)
        path = store.find(key)
        if path is not None:
            try:
                return OnnxRunner(open_session(path, self.num_threads), self.decoder)
            except Exception as error:  # onnxruntime has an exception for each of its codes, and documents none
                _log.warning("the stored graph %s cannot be opened (%s)", path, type(error).__name__)
        try:
            draft = store.write_draft(self.graph)
        except OSError as error:
            _log.warning("the converted model cannot be kept: %s", error)
            return self.load_in_memory()
        try:
            runner = self._check(OnnxRunner(open_session(draft / GRAPH_NAME, self.num_threads), self.decoder))
        except BaseException:
            store.discard(draft)
            raise
        store.publish(draft, key)
        return runner

    def load_in_memory(self) -> OnnxRunner:
        """Computes the constants in memory, of which that needs twice as much."""
        constants = {constant.name: value for constant, value in self.graph.iter_constants()}
        session = build_session(self.graph.model.SerializeToString(), constants, self.num_threads)
        return self._check(OnnxRunner(session, self.decoder, constants))

    def _check(self, runner: OnnxRunner) -> OnnxRunner:
        check_runner(runner, self.weights, self.precision)
        return runner
