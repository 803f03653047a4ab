"""The check of fill-in markers, on models that have learned its samples by heart: with markers, and as plain text."""

from pathlib import Path

import pytest

from inference.config import EngineConfig
from inference.engine.layout import Layout
from inference.engine.marker_check import MarkerMeasure, measure_markers
from inference.model.loader import load_model
from tests.inference.conftest import Memorised
from tests.support.toys import build_prompts, toy_tokenizer


def _measure(folder: Path, kind: str, layout: Layout) -> MarkerMeasure:
    loaded, fill_in = load_model(EngineConfig(folder)), build_prompts(toy_tokenizer(kind), layout).fill_in
    assert fill_in is not None
    return measure_markers(loaded.model, loaded.tokenizer, fill_in)


@pytest.mark.parametrize(
    ("learned", "layout"),
    [(layout, layout) for layout in (Layout.PSM_LINE, Layout.SPM_LINE)]
    + [(None, layout) for layout in (Layout.PSM, Layout.PSM_LINE, Layout.SPM)],
)
def test_a_model_is_trained_if_it_learned_the_samples_with_the_markers(
    learned: Layout | None, layout: Layout, memorised: Memorised
) -> None:
    """Others learned the same samples as plain text."""
    assert _measure(memorised(learned), "qwen", layout).is_trained == (learned is layout)


@pytest.mark.parametrize(
    ("log_end", "log_early_end", "is_trained"),
    [(-0.1, -9.0, True), (-4.5, -9.0, True), (-4.7, -9.0, False), (-0.1, -2.0, False), (-0.1, -2.5, True)],
)
def test_the_end_must_be_likely_after_the_gap_and_unlikely_in_it(
    log_end: float, log_early_end: float, is_trained: bool
) -> None:
    assert MarkerMeasure(log_end, log_early_end).is_trained == is_trained
