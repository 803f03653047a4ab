"""Loads the decoder of a folder without what writes such folders, torch and transformers."""

import json
from pathlib import Path
from typing import Any

from inference.config import EngineConfig
from inference.model.onnx.conversion import load_decoder
from inference.model.onnx.decoder_config import read_decoder_config
from inference.model.onnx.model import OnnxModel
from inference.model.sampler import NumpyTokens
from trie_cache.trie import Trie, Vocabulary


def load_folder(folder: Path, **settings: Any) -> OnnxModel:
    """The decoder in a folder, on onnxruntime. All rows of its head are tokens."""
    decoder = read_decoder_config(json.loads((folder / "config.json").read_text()))
    vocabulary = Vocabulary.from_tokens({row: row.to_bytes(2) for row in range(decoder.vocab_size)}, {})
    trie = Trie.build(vocabulary)
    tokens = NumpyTokens(vocabulary, trie)
    return load_decoder(EngineConfig(folder, **{"dtype": "float32"} | settings), decoder, tokens)
