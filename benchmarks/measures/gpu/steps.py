"""Single steps over a context that was read: a forward pass, and the choice from its rows.

The steps go through `LanguageModel` in the caller's thread, so that a profiler sees them. Each step is undone, so all
of them have the same length.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.corpora.repository_text import cut_text
from benchmarks.measures.gpu.setting import RandomEngine
from inference.engine.prompt import PromptBuilder
from inference.healing.covering import Crossing, Rule
from inference.healing.token_tree import TokenTree
from inference.model.language_model import LanguageModel, Part, SampleRequest, Sampling, SequenceCache
from inference.protocol.completion import CompletionRequest

_READ_TOKENS = 512  # in one pass, as the engine reads
_GREEDY = Sampling(temperature=0.0, top_p=1.0)
_NUM_BRANCHES = 5
_ROOM = 64  # tokens, for the steps
_WORDS = (
    "Nod",
    "expandt",
    "measur",
    "find_perc",
    "CompletionRequ",
    "tokeniz",
    "encod",
    "is_remem",
    "Prompt",
    "num_hea",
)


@dataclass(frozen=True, slots=True)
class Step:
    """What one sequence forwards in a step, and the crossings among which is chosen."""

    tree: TokenTree
    crossings: tuple[Crossing, ...]


class Steps:
    """A model, and sequences that have read a context."""

    def __init__(self, loaded: RandomEngine, num_sequences: int = 1) -> None:
        """Reads a context for each sequence. Raises OverloadedError."""
        parts = loaded.loaded
        self._loaded = loaded
        self._model: LanguageModel = parts.model
        self._prompts = PromptBuilder(parts.tokenizer)
        self._room = 2 * loaded.setting.sizes.num_context
        self._caches = [self.read_text(self._cut_text(index)) for index in range(num_sequences)]

    def _cut_text(self, index: int) -> str:
        num_tokens = self._loaded.setting.sizes.num_context
        return cut_text(self._prompts.tokenizer.encoder, self._prompts.tokenizer.vocabulary, num_tokens, index)

    def read_text(self, text: str) -> SequenceCache:
        """A new cache with the text, read in pieces."""
        ids = self._prompts.build(CompletionRequest(text), self._room).context_ids
        cache = self._model.new_cache(len(ids) + _ROOM)
        for start in range(0, len(ids), _READ_TOKENS):
            tree = TokenTree(ids[start : start + _READ_TOKENS])
            self._model.forward([Part(cache, tree, wants_logits=False)])
            cache.keep(tree, None)
        self._loaded.setting.synchronize()
        return cache

    def build_decode(self) -> Step:
        """A step of one token, which any token may follow."""
        return Step(TokenTree((17,)), (Crossing(None, b"", Rule.EXTEND),))

    def build_healing(self) -> Step:
        """A step of one token with the covering tree of a word: that of the words whose tree is nearest to five."""
        prompts = [self._prompts.build(CompletionRequest(f"x = {word}"), 64) for word in _WORDS]
        trees = [prompt.covering.build_tree((17,)) for prompt in prompts]
        best = min(range(len(trees)), key=lambda index: abs(len(trees[index].branch_ids) - _NUM_BRANCHES))
        return Step(trees[best], prompts[best].covering.crossings)

    def forward(self, step: Step) -> list[list[Any]]:
        """Forwards the step for all sequences. Returns the rows of each. `undo` must follow."""
        return self._model.forward([Part(cache, step.tree) for cache in self._caches])

    def choose(self, step: Step, rows: Sequence[Sequence[Any]]) -> None:
        """Chooses for each sequence. The choices are on the host when this returns."""
        self._model.choose([SampleRequest(step.tree, step.crossings, own, _GREEDY) for own in rows])

    def undo(self, step: Step) -> None:
        """Makes the sequences as long as before `forward`."""
        for cache in self._caches:
            length = cache.num_tokens
            cache.keep(step.tree, None)
            cache.cut(length)
        self._loaded.setting.synchronize()
