"""Whether the product gets a model folder right, or refuses it in a sentence that helps.

The product loads the folder and runs several sequences of different lengths by turns: prefilled in pieces, with trees,
keeping paths, beyond the model's windows. transformers says what is right, in the plainest way.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random

import torch
import transformers

from benchmarks.corpora.tiny_models import MAX_TOKENS, PLAIN
from benchmarks.measures.report import Outcome
from inference.config import EngineConfig
from inference.errors import ModelError
from inference.healing.token_tree import TokenTree
from inference.model.language_model import LoadedModel, SequenceInput
from inference.model.pytorch.model import TorchModel, TorchSequenceCache

Load = Callable[[EngineConfig], LoadedModel[TorchModel]]

TOLERANCE = 1e-3  # of the spread of the logits; rounding gives 1e-6 to 1e-4, a wrong mask or position over 1e-2
_MAX_SENTENCE = 300
_NUM_GROWN = 16  # tokens; more than a sequence grows, its trees included
_FOREIGN_ERROR = re.compile(r"\b[A-Z]\w*(Error|Exception|Warning)\b|Traceback|\bNone(Type)?\b")
_PARENTS = (None, 0, None, 2, 2)  # of the branches of each tree
_KEPT_NODES = (4, 1, None, 3)  # the nodes whose paths are kept, in turn
_PIECE = 23  # tokens of a long prompt that are prefilled in one pass


@dataclass(frozen=True, slots=True)
class Answer:
    """The logits that the product gives after some tokens."""

    stage: str
    token_ids: tuple[int, ...]
    logits: torch.Tensor  # [vocab_size] float32


@dataclass(slots=True)
class CachedSequence:
    """A sequence in the product's cache, and its tokens."""

    cache: TorchSequenceCache
    token_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _Move:
    """A sequence's part in a forward pass, and the node whose path is kept."""

    sequence: CachedSequence
    tree: TokenTree
    kept_node: int | None = None
    wants_logits: bool = True


class Passes:
    """Forwards several sequences of one model, and collects its answers."""

    def __init__(self, model: TorchModel, text_ids: list[int]) -> None:
        """`text_ids`: the ids to draw from."""
        self._model = model
        self._text_ids = text_ids
        self._random = Random(0)
        self.answers: list[Answer] = []

    def start(self) -> CachedSequence:
        """An empty sequence."""
        return CachedSequence(self._model.new_cache())

    def draw(self, count: int) -> tuple[int, ...]:
        """Random tokens."""
        return tuple(self._random.choices(self._text_ids, k=count))

    def read(self, stage: str, sequences: list[CachedSequence], texts: list[tuple[int, ...]]) -> None:
        """Forwards the texts in pieces, the sequences side by side, and records the answers after whole texts."""
        for start in range(0, max(len(text) for text in texts), _PIECE):
            end = start + _PIECE
            moves = [
                _Move(sequence, TokenTree(text[start:end]), wants_logits=end >= len(text))
                for sequence, text in zip(sequences, texts, strict=True)
                if start < len(text)
            ]
            self._forward(stage, moves)

    def grow(self, stage: str, sequences: list[CachedSequence]) -> None:
        """Forwards one token of each sequence with a tree, records the answers at all nodes, and keeps a path."""
        moves = []
        for index, sequence in enumerate(sequences):
            tree = TokenTree(self.draw(1), self.draw(len(_PARENTS)), _PARENTS)
            moves.append(_Move(sequence, tree, _KEPT_NODES[(index + len(sequence.token_ids)) % len(_KEPT_NODES)]))
        self._forward(stage, moves)

    def step(self, stage: str, sequences: list[CachedSequence]) -> None:
        """Forwards one token of each sequence."""
        self._forward(stage, [_Move(sequence, TokenTree(self.draw(1))) for sequence in sequences])

    def _forward(self, stage: str, moves: list[_Move]) -> None:
        parts = [SequenceInput(move.sequence.cache, move.tree, wants_logits=move.wants_logits) for move in moves]
        for move, rows in zip(moves, map(iter, self._model.forward(parts)), strict=True):
            before = move.sequence.token_ids + move.tree.chain_ids
            for node in (None, *range(len(move.tree.branch_ids))):
                if move.wants_logits:
                    self.answers.append(Answer(stage, before + _find_branch_ids(move.tree, node), next(rows).logits))
            branches = move.sequence.cache.copy_branches(move.tree)
            move.sequence.cache.keep(move.tree)
            move.sequence.cache.append([branches[branch] for branch in move.tree.find_path(move.kept_node)])
            move.sequence.token_ids = before + _find_branch_ids(move.tree, move.kept_node)


def _find_branch_ids(tree: TokenTree, node: int | None) -> tuple[int, ...]:
    return tuple(tree.branch_ids[branch] for branch in tree.find_path(node))


@dataclass(frozen=True, slots=True)
class FamilyResult:
    """What became of one model folder."""

    outcome: Outcome
    reason: str = ""  # the refusal in the product's words, or what is wrong
    difference: float | None = None  # the largest one, as a share of the spread of the logits


def check_folder(folder: Path, family: str, load: Load) -> FamilyResult:
    """Loads the folder with `load` and says what became of it. `family`: the model type that a refusal must name."""
    try:
        loaded = load(EngineConfig(folder))
    except ModelError as error:
        return check_refusal(str(error).replace(f"{folder}", "DIR"), family)
    except Exception as error:  # whatever comes is the result
        return FamilyResult(Outcome.WRONG, f"loading raised {describe(error)}")
    try:
        answers = run_product(loaded)
    except Exception as error:  # as above
        return FamilyResult(Outcome.WRONG, f"accepted, then failed with {describe(error)}")
    try:
        return compare_answers(answers, folder)
    except Exception as error:  # the reference has the code of transformers too
        return FamilyResult(Outcome.WRONG, f"accepted, but transformers alone failed with {describe(error)}")


def check_refusal(sentence: str, family: str) -> FamilyResult:
    """Refused, if the sentence names the family and is fit for people; else wrong."""
    faults = []
    if not re.search(rf"(?<!\w){re.escape(family)}", sentence):
        faults.append("does not name the family")
    if len(sentence) > _MAX_SENTENCE:
        faults.append(f"has {len(sentence)} characters")
    if "\n" in sentence:
        faults.append("has several lines")
    found = _FOREIGN_ERROR.search(sentence)
    if found:
        faults.append(f"shows {found.group()}")
    if faults:
        return FamilyResult(Outcome.WRONG, f"the refusal {' and '.join(faults)}: {_shorten(sentence)}")
    return FamilyResult(Outcome.REFUSED, sentence)


def compare_answers(answers: list[Answer], folder: Path) -> FamilyResult:
    """Right, if every answer is that of transformers after the same tokens alone."""
    model = load_reference(folder)
    rights = [compute_logits(model, answer.token_ids) for answer in answers]
    shares = [_find_share(answer.logits, right) for answer, right in zip(answers, rights, strict=True)]
    share, answer = max(
        zip(shares, answers, strict=True), key=lambda each: math.inf if math.isnan(each[0]) else each[0]
    )
    if share <= TOLERANCE:
        return FamilyResult(Outcome.RIGHT, "", share)
    num_tokens = len(answer.token_ids)
    reason = f"{answer.stage}: after {num_tokens} tokens the logits differ by {share:.2g} of their spread"
    return FamilyResult(Outcome.WRONG, reason, share)


def _find_share(logits: torch.Tensor, right: torch.Tensor) -> float:
    """The difference as a share of the spread, without the rows of the head that are no tokens."""
    is_token = ~logits.isneginf()
    return float((logits - right)[is_token].pow(2).mean().sqrt() / right.std())


def load_reference(folder: Path) -> torch.nn.Module:
    """The folder's model in transformers, with attention "eager"."""
    model: torch.nn.Module = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", local_files_only=True
    )
    return model.eval()


@torch.inference_mode()
def compute_logits(reference: torch.nn.Module, token_ids: tuple[int, ...]) -> torch.Tensor:
    """The logits after all of these tokens, and no others, were read: one sequence, no cache."""
    logits: torch.Tensor = reference(input_ids=torch.tensor([token_ids]), use_cache=False).logits
    return logits[0, -1].float()


def run_product(loaded: LoadedModel[TorchModel]) -> list[Answer]:
    """The product's answers: a sequence alone, several together, and one after the others."""
    text_ids = loaded.tokenizer.trie.order.tolist()
    num_tokens = min(loaded.model.max_tokens, MAX_TOKENS)
    passes = Passes(loaded.model, text_ids)
    lengths = (num_tokens - _NUM_GROWN, 3, min(27, num_tokens // 3))
    texts = [passes.draw(length) for length in lengths]
    _run_alone(passes, texts[2])
    _run_together(passes, texts, num_tokens)
    again = passes.start()
    passes.read("after others", [again], [texts[1]])
    passes.grow("after others", [again])
    return passes.answers


def _run_alone(passes: Passes, text: tuple[int, ...]) -> None:
    alone = passes.start()
    passes.read("alone", [alone], [text])
    passes.grow("alone", [alone])
    passes.step("alone", [alone])


def _run_together(passes: Passes, texts: list[tuple[int, ...]], num_tokens: int) -> None:
    """A long, a short and another sequence; then a copy of one of them; then the long one up to the last token."""
    together = [passes.start() for _ in texts]
    passes.read("together", together, texts)
    for _ in range(3):
        passes.grow("together", together)
        passes.step("together", together)
    copied = CachedSequence(together[2].cache.fork(), together[2].token_ids)  # as for another candidate of a request
    passes.step("together", [*together, copied])
    while len(together[0].token_ids) < num_tokens:
        passes.step("together", together)


def describe(error: Exception) -> str:
    """The error in one line."""
    return _shorten(f"{type(error).__name__}: {error}")


def _shorten(text: str) -> str:
    return " ".join(text.split())[:_MAX_SENTENCE]


@dataclass(frozen=True, slots=True)
class FamilyRow:
    """What is known of a family."""

    name: str
    outcome: Outcome  # WRONG if any folder is, otherwise that of the plain one
    reason: str  # of the refusal, or what is wrong; empty if right
    exceptions: tuple[str, ...]  # the variants with another outcome than the plain folder
    num_folders: int  # that transformers can run, and that were checked
    largest_difference: float | None  # between logits, as a share of their spread


def build_family_row(name: str, results: Mapping[str, FamilyResult]) -> FamilyRow:
    """The row of the family whose folders have these results, by variant."""
    checked = {variant: result for variant, result in results.items() if result.outcome is not Outcome.IMPOSSIBLE}
    plain = results[PLAIN]
    wrong = [f"{variant}: {result.reason}" for variant, result in checked.items() if result.outcome is Outcome.WRONG]
    return FamilyRow(
        name,
        Outcome.WRONG if wrong else plain.outcome,
        wrong[0] if wrong else plain.reason,
        tuple(sorted(variant for variant, result in checked.items() if result.outcome is not plain.outcome)),
        len(checked),
        max((result.difference for result in checked.values() if result.difference is not None), default=None),
    )
