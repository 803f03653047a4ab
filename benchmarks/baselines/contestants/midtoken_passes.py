"""Passes of midtoken's runner for the CPU.

    python -m benchmarks.baselines.contestants.midtoken_passes MODEL_DIR --dtype D --threads N --graph-dir FOLDER

Five rows are a tree, as healing makes one. Long texts are read in pieces, as the engine does.
"""

from benchmarks.baselines.contestants.line_protocol import parse_arguments
from benchmarks.baselines.contestants.passes import Passes, serve_passes
from inference.config import EngineConfig
from inference.healing.token_tree import TokenTree
from inference.model.language_model import Part
from inference.model.loader import load_model

_PIECE = 512
_PARENTS = {1: (None,), 5: (None, 0, None, 2, 2)}


def main() -> None:
    options = parse_arguments(__doc__)
    config = EngineConfig(options.model, dtype=options.dtype, num_threads=options.threads, graph_dir=options.graph_dir)
    serve_passes(lambda: _OwnPasses(config))


class _OwnPasses(Passes):
    def __init__(self, config: EngineConfig) -> None:
        self._model = load_model(config).model
        self._cache = self._model.new_cache(1)

    def read(self, token_ids: list[int]) -> None:
        self._cache = self._model.new_cache(len(token_ids))
        for start in range(0, len(token_ids), _PIECE):
            tree = TokenTree(tuple(token_ids[start : start + _PIECE]))
            self._model.forward([Part(self._cache, tree, wants_logits=start + _PIECE >= len(token_ids))])
            self._cache.keep(tree)

    def cut(self, num_tokens: int) -> None:
        self._cache.cut(num_tokens)

    def forward(self, token_ids: list[int]) -> None:
        tree = TokenTree((), tuple(token_ids), _PARENTS[len(token_ids)])
        self._model.forward([Part(self._cache, tree)])


if __name__ == "__main__":
    main()
