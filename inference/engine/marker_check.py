"""Whether fill-in markers do what their names say in one model: a measurement at load.

Many models have the markers in their tokenizer and were never trained on them. Given a suffix between such markers,
they do worse than without it. A model that was trained on them ends its text where the suffix begins: right after the
missing text, and not in the middle of it. Without training, a text hardly ever ends in the middle of a statement, where
most of the samples have their gap.

So a few short samples are laid out with their suffix, and one pass measures how likely the end is after the missing
text, and after a part of it. The model was *trained on the markers* if the first is likely (a hundredth at least, as
the geometric mean over the samples) and ten times as likely as the second.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from inference.engine.layout import FillIn
from inference.healing.covering import CoveringTree, Crossing, Rule
from inference.healing.heal_point import encode_section, encode_text
from inference.healing.loaded_tokenizer import LoadedTokenizer
from inference.healing.token_tree import TreeBuilder
from inference.model.language_model import LanguageModel, SequenceInput
from inference.model.sampler import SampleRequest, Sampling

_MIN_LOG_END = math.log(0.01)
_MIN_CONTRAST = math.log(10)
# Families end the missing text with a token of their own: CodeLlama, CodeGemma, and those that have two end tokens.
_END_NAMES = ("▁<EOT>", "<EOT>", "<|file_separator|>", "<|endoftext|>", "<|end_of_text|>", "<file_sep>", "<|file_sep|>")


@dataclass(frozen=True, slots=True)
class Sample:
    """Text with a gap, in four parts."""

    prefix: str
    part: str
    remaining: str
    suffix: str


SAMPLES = (
    Sample("def area(width, height):\n    return width", " *", " height", "\n\n\nprint(area(2, 3))\n"),
    Sample("total = 0\nfor number in numbers", ":\n    total", " += number", "\nprint(total)\n"),
    Sample("import os\n\n\ndef read(path):\n    with open", "(path", ")", " as file:\n        return file.read()\n"),
    Sample("class Point:\n    def __init__", "(self,", " x, y", "):\n        self.x = x\n        self.y = y\n"),
    Sample("if name is None", ":\n    name", " =", ' ""\nprint(name)\n'),
    Sample("names = [name", " for", " name", " in names if name]\nprint(names)\n"),
)


@dataclass(frozen=True, slots=True)
class MarkerMeasure:
    """Natural logarithms of probabilities, means over the samples."""

    log_end: float  # the text ends after the missing text
    log_early_end: float  # it ends after a part of the missing text

    @property
    def is_trained(self) -> bool:
        """True if the model ends its text where the suffix begins, and not before."""
        return self.log_end >= _MIN_LOG_END and self.log_end - self.log_early_end >= _MIN_CONTRAST

    def describe(self) -> str:
        """Half a sentence for a model that is not trained."""
        return (
            f"it does not end its text where the suffix begins (probability {math.exp(self.log_end):.2g} there, "
            f"{math.exp(self.log_early_end):.2g} before), so it was not trained on them"
        )


def measure_markers(model: LanguageModel, tokenizer: LoadedTokenizer, fill_in: FillIn) -> MarkerMeasure:
    """What the markers do in this model, in one pass."""
    end_ids = _find_end_ids(tokenizer)
    trees = [_build_end_tree(tokenizer, fill_in, sample, end_ids) for sample in SAMPLES]
    masses = _measure_masses(model, trees)
    log_end = sum(_find_log_end(each[1 + len(end_ids) :]) for each in masses) / len(masses)
    log_early_end = sum(_find_log_end(each[: 1 + len(end_ids)]) for each in masses) / len(masses)
    return MarkerMeasure(log_end, log_early_end)


def _find_end_ids(tokenizer: LoadedTokenizer) -> tuple[int, ...]:
    named = {tokenizer.vocabulary.special_id(name) for name in _END_NAMES} - {None}
    return tuple(sorted({*tokenizer.vocabulary.end_ids, *(end_id for end_id in named if end_id is not None)}))


def _build_end_tree(
    tokenizer: LoadedTokenizer, fill_in: FillIn, sample: Sample, end_ids: tuple[int, ...]
) -> CoveringTree:
    """The context, the part and the whole missing text, and each end token after both. Each path has a crossing."""
    part = encode_section(tokenizer.encoder, sample.part)
    whole = part + encode_section(tokenizer.encoder, sample.remaining)
    paths = [stem + end for stem in (part, whole) for end in ((), *((end_id,) for end_id in end_ids))]
    kept, suffix_ids = encode_text(tokenizer.encoder, sample.prefix), encode_section(tokenizer.encoder, sample.suffix)
    context = tokenizer.start_ids + fill_in.lay_out(kept, suffix_ids, b"", tokenizer.vocabulary.token_bytes)
    branches = TreeBuilder()
    crossings = tuple(Crossing(branches.add_path(path), b"", Rule.EXTEND) for path in paths)
    return CoveringTree(branches.build(context), crossings)


def _measure_masses(model: LanguageModel, trees: Sequence[CoveringTree]) -> list[list[float]]:
    """log P(path) of each tree's paths, in one pass."""
    rows = model.forward([SequenceInput(model.new_cache(each.tree.num_rows), each.tree) for each in trees])
    results = model.choose(
        [
            SampleRequest(each.tree, each.crossings, own, Sampling(0.0, 1.0), wants_scores=True)
            for each, own in zip(trees, rows, strict=True)
        ]
    )
    return [[] if result.scores is None else result.scores.log_masses.tolist() for result in results]


def _find_log_end(masses: list[float]) -> float:
    """log P(end | stem), from the mass of the stem and those of the stem with each end token."""
    stem, *ends = masses
    return math.log(max(sum(math.exp(end - stem) for end in ends), 1e-30))
