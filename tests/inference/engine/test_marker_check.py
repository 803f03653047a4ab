"""The check of fill-in markers, on models that have learned its samples by heart: with markers, and as plain text."""

from pathlib import Path

import pytest

from inference.config import EngineConfig
from inference.engine.fill_in import find_family
from inference.engine.layout import FillIn, Layout
from inference.engine.marker_check import MarkerMeasure, measure_markers
from inference.model.loader import load_model
from tests.inference.conftest import MakeModel, Memorised
from tests.support.toys import KINDS, ToyTokenizer, build_prompts, toy_tokenizer


def _fill_in(toy: ToyTokenizer, layout: Layout) -> FillIn:
    fill_in = build_prompts(toy, layout).fill_in
    assert fill_in is not None
    return fill_in


def _measure(folder: Path, fill_in: FillIn) -> MarkerMeasure:
    loaded = load_model(EngineConfig(folder))
    return measure_markers(loaded.model, loaded.tokenizer, fill_in)


@pytest.mark.parametrize("layout", [Layout.PSM_LINE, Layout.SPM])
def test_a_model_that_was_trained_on_the_markers_is_recognised(layout: Layout, memorised: Memorised) -> None:
    measure = _measure(memorised(layout), _fill_in(toy_tokenizer("qwen"), layout))

    assert measure.is_trained
    assert measure.log_end > -1


@pytest.mark.parametrize("layout", [Layout.PSM, Layout.PSM_LINE, Layout.SPM])
def test_a_model_that_read_the_same_text_without_markers_is_not_trained(layout: Layout, memorised: Memorised) -> None:
    assert not _measure(memorised(None), _fill_in(toy_tokenizer("qwen"), layout)).is_trained


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_with_random_weights_is_not_trained(kind: str, make_model: MakeModel) -> None:
    toy = toy_tokenizer(kind)

    for layout in (Layout.PSM, Layout.PSM_LINE, Layout.SPM):
        measure = _measure(make_model(kind), _fill_in(toy, layout))

        assert not measure.is_trained
        assert not measure.profits


@pytest.mark.parametrize(
    ("log_end", "log_early_end", "is_trained"),
    [(-0.1, -9.0, True), (-4.5, -9.0, True), (-4.7, -9.0, False), (-0.1, -2.0, False), (-0.1, -2.5, True)],
)
def test_the_end_must_be_likely_after_the_gap_and_unlikely_in_it(
    log_end: float, log_early_end: float, is_trained: bool
) -> None:
    assert MarkerMeasure(log_end, log_early_end, 0.0).is_trained == is_trained


def test_the_default_model_profits_from_a_suffix_though_it_does_not_end_there() -> None:
    loaded = load_model(EngineConfig(Path("models/default")))
    family = find_family(loaded.tokenizer.vocabulary)
    markers = None if family is None else family.find_markers(loaded.tokenizer.vocabulary)
    assert markers is not None

    measure = _measure(Path("models/default"), FillIn(markers, Layout.SPM))

    assert measure.profits
    assert not measure.is_trained
