"""Whether fill-in markers do what their names say in one model: a measurement at load.

Many models have the markers in their tokenizer and were never trained on them. Given a suffix between such markers,
they do worse than without it. A model that was trained on them ends its text where the suffix begins: right after the
missing text, and not in the middle of it. Without training, a text hardly ever ends in the middle of a statement, where
most of the samples have their gap.

So a few short samples are laid out with their suffix. One pass measures, for each, how likely the end is after the
missing text, and how likely it is after a part of it. The markers work if the first is likely (a hundredth at least, as
the geometric mean over the samples) and much more likely than the second.
"""

import math
from dataclasses import dataclass

from inference.engine.prompts.layout import FillIn
from inference.engine.prompts.prompt import PromptBuilder
from inference.healing.covering import Crossing, Rule
from inference.healing.heal_point import encode_section, encode_text
from inference.healing.token_tree import TreeBuilder
from inference.model.language_model import LanguageModel, SampleRequest, SampleResult, Sampling, Step

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
    """Natural logarithms, as means over the samples."""

    log_end: float  # of the probability that the text ends after the missing text
    log_early_end: float  # of the probability that it ends after a part of it

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


def measure_markers(model: LanguageModel, prompts: PromptBuilder, fill_in: FillIn) -> MarkerMeasure:
    """How likely the end of the text is, after the missing text of the samples and before, in one pass."""
    end_ids = _find_end_ids(prompts)
    steps = [_build_step(model, prompts, fill_in, sample, end_ids) for sample in SAMPLES]
    results = [result for result in model.step(steps) if result is not None]
    measured = [_read(result, len(end_ids)) for result in results]
    return MarkerMeasure(*(sum(column) / len(measured) for column in zip(*measured, strict=True)))


def _find_end_ids(prompts: PromptBuilder) -> tuple[int, ...]:
    named = {prompts.vocabulary.special_id(name) for name in _END_NAMES} - {None}
    return tuple(sorted({*prompts.vocabulary.end_ids, *(end_id for end_id in named if end_id is not None)}))


def _build_step(
    model: LanguageModel, prompts: PromptBuilder, fill_in: FillIn, sample: Sample, end_ids: tuple[int, ...]
) -> Step:
    """A tree with the part, the whole missing text, and each end token after both."""
    encoder = prompts.encoder
    kept, suffix = encode_text(encoder, sample.prefix), encode_section(encoder, sample.suffix)
    part = encode_section(encoder, sample.part)
    whole = part + encode_section(encoder, sample.remaining)
    token_bytes = prompts.vocabulary.token_bytes
    context = prompts.start_ids + fill_in.lay_out(kept, suffix, b"", token_bytes)
    branches = TreeBuilder()
    paths = [stem + end for stem in (part, whole) for end in ((), *((end_id,) for end_id in end_ids))]
    crossings = tuple(Crossing(branches.add_path(path), b"", Rule.EXTEND) for path in paths)
    tree = branches.build(context)
    return Step(model.new_cache(tree.num_rows), tree, SampleRequest(tree, crossings, Sampling(0.0, 1.0)))


def _read(result: SampleResult, num_ends: int) -> tuple[float, float]:
    """The logarithms of the end's probability after the whole and after the part."""
    masses = result.log_masses.tolist()
    part, whole = masses[: 1 + num_ends], masses[1 + num_ends :]
    return _find_log_end(whole), _find_log_end(part)


def _find_log_end(masses: list[float]) -> float:
    """log P(end | stem), from the mass of the stem and those of the stem with each end token."""
    stem, *ends = masses
    return math.log(max(sum(math.exp(end - stem) for end in ends), 1e-30))
