"""A model folder for onnxruntime: converted or mapped from the store, and checked; or why it cannot be run that way."""

import dataclasses
import gc
import logging
import math
import tempfile
from pathlib import Path

import numpy as np
from onnx import TensorProto, numpy_helper

from inference.config import AUTO_DTYPE, EngineConfig
from inference.errors import ModelError
from inference.healing.loaded_tokenizer import load_tokenizer
from inference.model.language_model import LoadedModel, check_tree_difference, measure_tree_difference
from inference.model.onnx.decoder_config import DecoderConfig, read_decoder_config
from inference.model.onnx.graph import build_graph, build_graph_model, build_product
from inference.model.onnx.graph_store import CONSTANTS_NAME, GRAPH_NAME, GraphStore, compute_key
from inference.model.onnx.model import OnnxModel
from inference.model.onnx.session import open_session
from inference.model.onnx.weights import Array, Precision, Weights, iter_shapes, quantize
from inference.model.sampler import NumpyTokens
from inference.model.sizes import MAX_SMALL, choose_auto_tokens, choose_threads, describe_choice
from inference.model_folder import find_weight_files, read_object

_CHECKED_SHAPE, _MAX_ROUNDING = (64, 300), 0.25  # of the weights of a check, and of its results

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
    tokens = NumpyTokens(tokenizer.vocabulary, tokenizer.trie)
    num_weights = sum(math.prod(shape) for _, shape in iter_shapes(decoder))
    suits = Precision.FLOAT32 if num_weights <= MAX_SMALL else Precision.INT8
    dtype = suits.value if config.dtype == AUTO_DTYPE else config.dtype
    num_threads = choose_threads(config.num_threads, num_weights)
    model = load_decoder(dataclasses.replace(config, dtype=dtype, num_threads=num_threads), decoder, tokens)
    gc.collect()  # what has converted the weights has cycles, and the files are mapped as long as they exist
    runs_as = describe_choice(dtype, num_threads, "onnxruntime", num_weights)
    return LoadedModel(model, tokenizer, runs_as, auto_tokens=choose_auto_tokens(num_weights))


def load_decoder(config: EngineConfig, decoder: DecoderConfig, tokens: NumpyTokens) -> OnnxModel:
    """Returns the decoder in `config.model_dir`, with its tokens. Raises ModelError.

    `config.dtype` is the name of a `Precision`. Converted models are kept in `config.graph_dir`. If it is None or
    cannot be used, their constants are mapped from files that are removed at once.
    """
    precision = Precision(config.dtype)

    def load_from(store: GraphStore) -> OnnxModel:
        """Maps the constants from the store. They are computed before if necessary, one after the other."""
        key = compute_key(graph, weights.paths)
        path = store.find(graph, key)
        if path is not None:
            return open_model(path)
        with store.add(graph, key) as draft:
            model = open_model(draft / GRAPH_NAME)
            check_product(precision.num_bits)
            check_tree_difference(measure_tree_difference(model), "onnxruntime")
            return model

    def open_model(path: Path) -> OnnxModel:
        return OnnxModel(open_session(str(path), config.num_threads or 1), decoder, tokens)

    try:
        weights = Weights(config.model_dir, decoder)
        graph = build_graph(decoder, weights, precision, CONSTANTS_NAME)
        if config.graph_dir is not None:
            try:
                return load_from(GraphStore(config.graph_dir))
            except OSError as error:
                _log.warning("the converted model cannot be kept: %s", error)
        with tempfile.TemporaryDirectory(prefix="midtoken-model-") as folder:
            return load_from(GraphStore(Path(folder)))
    except ModelError as error:
        raise ModelError(f"cannot load the model in {config.model_dir}: {error}") from error
    except OSError as error:
        raise ModelError(
            f"cannot load the model in {config.model_dir}: converted, its weights can be written neither to the cache "
            f"folder nor to {tempfile.gettempdir()} ({error.strerror})"
        ) from error


def check_product(num_bits: int) -> None:
    """Raises ModelError if onnxruntime computes a product with weights of so many bits wrongly on this machine."""
    if num_bits == Precision.FLOAT32.num_bits:
        return
    random = np.random.default_rng(0)
    weights, rows = (
        random.normal(1, 1, shape).astype(np.float32) for shape in (_CHECKED_SHAPE, (1, 2, _CHECKED_SHAPE[1]))
    )
    codes, scales, zero_points = quantize(weights, num_bits)
    parts: dict[str, Array] = {"codes": codes, "scales": scales, "zero points": zero_points.reshape(len(weights), -1)}
    constants = [numpy_helper.from_array(array, name) for name, array in parts.items()]
    node = build_product(["rows", *parts], "out", rows.shape[-1], len(weights), num_bits)
    output = (TensorProto.FLOAT, [*rows.shape[:-1], len(weights)])
    graph = build_graph_model([node], {"rows": (TensorProto.FLOAT, rows.shape)}, {"out": output}, constants)
    [found] = open_session(graph.SerializeToString(), 1).run(None, {"rows": rows})
    expected = rows @ weights.T
    if not (found - expected).std() <= _MAX_ROUNDING * expected.std():
        raise ModelError(f"onnxruntime computes products with weights of {num_bits} bits wrongly on this machine")
