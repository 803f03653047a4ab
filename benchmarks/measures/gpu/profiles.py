"""Profiles of single actions: the longest kernels, and how many a step launches."""

from collections.abc import Callable
from contextlib import closing

from benchmarks.corpora.repository_text import cut_text
from benchmarks.measures.gpu.choice import build_choice
from benchmarks.measures.gpu.device_profile import describe, profile_action
from benchmarks.measures.gpu.setting import RandomEngine, Setting, load_random_engine
from benchmarks.measures.gpu.steps import Step, Steps

_SHAPE_ACTIONS = ("decode", "tree", "batch", "prefill")
PROFILES = ("choice", *(f"{action}_{shape}" for shape in ("1_5b", "7b") for action in _SHAPE_ACTIONS))


def profile_part(setting: Setting, name: str, device_name: str) -> str:
    """The table of an action, one of PROFILES. `decode`, `tree` and `batch` are steps with pass and choice."""
    if name == "choice":
        return describe(name, profile_action(setting, build_choice(setting)), device_name)
    action, _, shape_name = name.partition("_")
    with closing(load_random_engine(setting, setting.shapes[shape_name])) as loaded:
        return describe(name, profile_action(setting, _build_action(loaded, action)), device_name)


def _build_action(loaded: RandomEngine, action: str) -> Callable[[], object]:
    steps = Steps(loaded, loaded.setting.sizes.num_sequences if action == "batch" else 1)
    if action == "prefill":
        parts = loaded.loaded
        text = cut_text(parts.tokenizer.encoder, parts.tokenizer.vocabulary, loaded.setting.sizes.num_context)
        return lambda: steps.read_text(text)
    step: Step = steps.build_healing() if action == "tree" else steps.build_decode()

    def run() -> None:
        steps.choose(step, steps.forward(step))
        steps.undo(step)

    return run
