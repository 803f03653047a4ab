"""A model folder for onnxruntime: converted or mapped from the store, and checked; or why it cannot be run that way."""

import dataclasses
import gc
import logging
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from inference.config import EngineConfig
from inference.errors import ModelError
from inference.healing.loaded_tokenizer import load_tokenizer
from inference.model.language_model import LoadedModel
from inference.model.measurements import find_memory, identify_files, is_busy, open_measurements
from inference.model.numpy_sampler import NumpySampler
from inference.model.onnx.decoder_config import DecoderConfig, read_decoder_config
from inference.model.onnx.fitting import check_product, choose_fit, name_trial, run_trial
from inference.model.onnx.graph import Graph, build_graph
from inference.model.onnx.graph_store import CONSTANTS_NAME, GRAPH_NAME, GraphStore, compute_key
from inference.model.onnx.model import OnnxModel
from inference.model.onnx.session import open_session
from inference.model.onnx.weights import Precision, Weights
from inference.model.tree_check import check_tree_difference, measure_tree_difference
from inference.model_folder import find_weight_files, read_object

_log = logging.getLogger(__name__)


def find_folder_obstacle(folder: Path) -> str | None:
    """Why the model in `folder` cannot be run on onnxruntime, as far as names and config.json tell; None if it can."""
    try:
        if any(path.suffix != ".safetensors" for path in find_weight_files(folder)):
            return "its weights are not in safetensors files"
        read_decoder_config(read_object(folder / "config.json"))
    except ModelError as error:
        return str(error)
    return None


def load_onnx_model(config: EngineConfig) -> LoadedModel[OnnxModel]:
    """The model in `config.model_dir`, which has no obstacle. Raises ModelError if it cannot be run rightly."""
    decoder = read_decoder_config(read_object(config.model_dir / "config.json"))
    tokenizer = load_tokenizer(config.model_dir, decoder.vocab_size)
    sampler = NumpySampler(tokenizer.vocabulary, tokenizer.trie)
    recall = open_measurements(config.graph_dir)
    run_trial_once = partial(recall, name_trial(decoder), partial(run_trial, decoder), not is_busy())
    fit = choose_fit(config.dtype, config.num_threads, decoder, find_memory(), run_trial_once)
    config = dataclasses.replace(config, dtype=fit.dtype, num_threads=fit.num_threads)
    files = identify_files(path for path in config.model_dir.iterdir() if path.is_file())
    model = load_decoder(config, decoder, sampler)
    gc.collect()  # what has converted the weights has cycles, and the files are mapped as long as they exist
    return LoadedModel(
        model,
        tokenizer,
        str(fit),
        lambda name, *measure: recall(f"{files} {fit.dtype} {name}", *measure),
    )


def load_decoder(config: EngineConfig, decoder: DecoderConfig, sampler: NumpySampler) -> OnnxModel:
    """The decoder in `config.model_dir`, with a sampler for its tokens. Raises ModelError.

    `config.dtype` is the name of a `Precision`.
    Converted models are kept in `config.graph_dir`; if it is None or cannot be used, in no folder.
    """
    precision = Precision(config.dtype)
    try:
        weights = Weights(config.model_dir, decoder)
        graph = build_graph(decoder, weights, precision, CONSTANTS_NAME)
        return _Loader(decoder, weights, precision, graph, sampler, config.num_threads or 1).load(config.graph_dir)
    except ModelError as error:
        raise ModelError(f"cannot load the model in {config.model_dir}: {error}") from error


@dataclass(frozen=True, slots=True)
class _Loader:
    """Loads one model, whose graph is built, but not its constants."""

    decoder: DecoderConfig
    weights: Weights
    precision: Precision
    graph: Graph
    sampler: NumpySampler
    num_threads: int

    def load(self, cache: Path | None) -> OnnxModel:
        """Maps the constants from the cache folder. They are computed before if necessary, one after the other."""
        if cache is not None:
            try:
                return self._load_from(GraphStore(cache))
            except OSError as error:
                _log.warning("the converted model cannot be kept: %s", error)
        return self._load_unkept()

    def _load_from(self, store: GraphStore) -> OnnxModel:
        key = compute_key(self.graph, self.weights.paths)
        path = store.find(self.graph, key)
        if path is not None:
            return self._open(path)
        with store.add(self.graph, key) as draft:
            model = self._open(draft / GRAPH_NAME)
            check_product(self.precision.num_bits)
            check_tree_difference(measure_tree_difference(model), "onnxruntime")
            return model

    def _load_unkept(self) -> OnnxModel:
        """Maps the constants from files that are removed at once. Raises ModelError if there is no room for them."""
        try:
            with tempfile.TemporaryDirectory(prefix="midtoken-model-") as folder:
                return self._load_from(GraphStore(Path(folder)))
        except OSError as error:
            raise ModelError(
                "converted, its weights can be written neither to the cache folder nor to "
                f"{tempfile.gettempdir()} ({error.strerror})"
            ) from error

    def _open(self, path: Path) -> OnnxModel:
        return OnnxModel(open_session(str(path), self.num_threads), self.decoder, self.sampler)
