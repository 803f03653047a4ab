"""Builds a tiny model in a temporary folder and checks it. This is what each worker process does."""

import contextlib
import logging
import tempfile
from pathlib import Path

import torch
import transformers

from benchmarks.corpora.families.tiny_config import MAX_TOKENS
from benchmarks.corpora.families.tiny_families import build_config
from benchmarks.corpora.families.tiny_folder import NUM_SPECIAL_TOKENS, write_folder, write_raw_folder
from benchmarks.corpora.families.tiny_variants import TinyModel
from benchmarks.measures.families.family_check import FamilyResult, Outcome, check_folder, describe
from benchmarks.measures.families.lone_passes import LonePasses
from inference.model.pytorch.loader import load_torch_model


def check_tiny_model(model: TinyModel) -> FamilyResult:
    """What becomes of the model's folder. Every failure is a result."""
    silence_transformers()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name, contextlib.redirect_stdout(None), contextlib.redirect_stderr(None):
        folder = Path(name)
        try:
            _write(folder, model)
        except Exception as error:  # the code of some hundred families raises undocumented exceptions
            outcome = Outcome.IMPOSSIBLE if model.may_be_impossible else Outcome.WRONG
            return FamilyResult(outcome, f"the tiny model cannot be built: {describe(error)}")
        return check_folder(folder, model.family, load_torch_model)


def _write(folder: Path, model: TinyModel) -> None:
    if not model.is_built:
        write_raw_folder(folder, model.changes)
        return
    write_folder(folder, build_config(model.family, model.changes), model.class_name)
    if model.may_be_impossible:
        LonePasses(folder).find_logits(tuple(NUM_SPECIAL_TOKENS + index for index in range(MAX_TOKENS)))


def silence_transformers() -> None:
    """Switches off the messages and progress bars of transformers, which are about settings of tiny models."""
    logging.disable(logging.CRITICAL)
    transformers.utils.logging.disable_progress_bar()
