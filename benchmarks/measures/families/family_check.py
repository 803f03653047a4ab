"""Whether the product gets a model folder right, or refuses it in a sentence that helps.

The product loads the folder and runs several sequences of different lengths together: prefilled in pieces, with trees,
keeping paths, beyond the model's windows. `LonePasses` judges every answer.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from benchmarks.corpora.families.tiny_config import MAX_TOKENS
from benchmarks.measures.families.lone_passes import LonePasses
from benchmarks.measures.families.packed_passes import Answer, PackedPasses
from benchmarks.measures.families.string_passes import read_strings
from inference.config import EngineConfig
from inference.errors import ModelError
from inference.model.language_model import LoadedModel
from inference.model.pytorch.runner import TorchModel

Load = Callable[[EngineConfig], LoadedModel[TorchModel]]

TOLERANCE = 1e-3  # of the spread of the logits; rounding gives 1e-6 to 1e-4, a wrong mask or position over 1e-2
_MAX_SENTENCE = 300
_NUM_GROWN = 16  # tokens; more than a sequence grows, its trees included
_FOREIGN_ERROR = re.compile(r"\b[A-Z]\w*(Error|Exception|Warning)\b|Traceback|\bNone(Type)?\b")


class Outcome(StrEnum):
    RIGHT = "right"
    REFUSED = "refused"
    WRONG = "wrong"
    IMPOSSIBLE = "impossible"  # transformers itself cannot build or run this variant


@dataclass(frozen=True, slots=True)
class FamilyResult:
    """What became of one model folder."""

    outcome: Outcome
    reason: str = ""  # the refusal in the product's words, or what is wrong
    difference: float | None = None  # the largest one, as a share of the spread of the logits
    num_answers: int = 0


def check_folder(folder: Path, family: str, load: Load) -> FamilyResult:
    """Loads the folder with `load` and judges what happens. `family`: the model type that a refusal must name."""
    try:
        loaded = load(EngineConfig(folder, warm=False))
    except ModelError as error:
        return judge_refusal(str(error).replace(f"{folder}", "DIR"), family)
    except Exception as error:  # whatever comes is the result
        return FamilyResult(Outcome.WRONG, f"loading raised {describe(error)}")
    try:
        answers = run_product(loaded)
    except Exception as error:  # as above
        return FamilyResult(Outcome.WRONG, f"accepted, then failed with {describe(error)}")
    try:
        return judge_answers(answers, folder)
    except Exception as error:  # the judge has the code of transformers too
        return FamilyResult(Outcome.WRONG, f"accepted, but transformers alone failed with {describe(error)}")


def judge_refusal(sentence: str, family: str) -> FamilyResult:
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


def judge_answers(answers: list[Answer], folder: Path) -> FamilyResult:
    """Right, if every answer is that of transformers after the same tokens alone."""
    largest = LonePasses(folder).find_largest_difference(answers)
    if largest.share <= TOLERANCE:
        return FamilyResult(Outcome.RIGHT, "", largest.share, len(answers))
    reason = (
        f"{largest.stage}: after {largest.num_tokens} tokens the logits differ by {largest.share:.2g} of their spread"
    )
    return FamilyResult(Outcome.WRONG, reason, largest.share, len(answers))


def run_product(loaded: LoadedModel[TorchModel]) -> list[Answer]:
    """The product's answers: a sequence alone, several together, one after the others, and token strings."""
    text_ids = loaded.trie.order.tolist()
    num_tokens = min(loaded.model.runner.max_tokens, MAX_TOKENS)
    passes = PackedPasses(loaded.model.runner, text_ids)
    lengths = (num_tokens - _NUM_GROWN, 3, min(27, num_tokens // 3))
    texts = [passes.draw(length) for length in lengths]
    _run_alone(passes, texts[2])
    _run_together(passes, texts, num_tokens)
    again = passes.start()
    passes.read("after others", [again], [texts[1]])
    passes.grow("after others", [again])
    return passes.answers + read_strings(loaded, text_ids, num_tokens)


def _run_alone(passes: PackedPasses, text: tuple[int, ...]) -> None:
    alone = passes.start()
    passes.read("alone", [alone], [text])
    passes.grow("alone", [alone])
    passes.step("alone", [alone])


def _run_together(passes: PackedPasses, texts: list[tuple[int, ...]], num_tokens: int) -> None:
    """A long, a short and another sequence; then a copy of one of them; then the long one up to the last token."""
    together = [passes.start() for _ in texts]
    passes.read("together", together, texts)
    for _ in range(3):
        passes.grow("together", together)
        passes.step("together", together)
    passes.step("together", [*together, together[2].fork()])
    while len(together[0].token_ids) < num_tokens:
        passes.step("together", together)


def describe(error: Exception) -> str:
    """The error in one line."""
    return _shorten(f"{type(error).__name__}: {error}")


def _shorten(text: str) -> str:
    return " ".join(text.split())[:_MAX_SENTENCE]
