"""The parts of the measurement, and how those that share a process are run."""

import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from benchmarks.measures.gpu.choice import measure_choice, measure_choice_busy
from benchmarks.measures.gpu.device import measure_device
from benchmarks.measures.gpu.memory import measure_memory
from benchmarks.measures.gpu.prefill import measure_prefill
from benchmarks.measures.gpu.refusal import measure_refusal
from benchmarks.measures.gpu.right import measure_right
from benchmarks.measures.gpu.scale import measure_scale
from benchmarks.measures.gpu.setting import Deadline, Figures, RandomEngine, Setting, load_random_engine
from benchmarks.measures.gpu.transformers_generate import measure_transformers
from benchmarks.measures.gpu.tree import measure_tree
from benchmarks.measures.gpu.warm import measure_warm

LOAD_S = 45  # for the start of a process, and the weights of the largest model


@dataclass(frozen=True, slots=True)
class Part:
    """Something that is measured. Parts of one group share a process and a model, and follow each other."""

    name: str
    group: str
    budget_s: float
    measure: Callable[["Process", Deadline], Figures]


@dataclass(slots=True)
class Process:
    """What the parts of one process share."""

    setting: Setting
    owner: ExitStack
    _engines: dict[str, RandomEngine] = field(default_factory=dict)

    def load(self, shape_name: str) -> RandomEngine:
        """The engine of this shape, which the first call loads. Raises ModelError."""
        if shape_name not in self._engines:
            self._engines[shape_name] = load_random_engine(self.setting, self.setting.shapes[shape_name])
            self.owner.callback(self._engines[shape_name].close)
        return self._engines[shape_name]


@dataclass(slots=True)
class Results:
    """What was measured, and why the rest was not."""

    figures: Figures = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)  # by the names of parts
    done: list[str] = field(default_factory=list)  # the parts that have ended, well or not


def _of_setting(measure: Callable[[Setting, Deadline], Figures]) -> Callable[[Process, Deadline], Figures]:
    return lambda process, deadline: measure(process.setting, deadline)


def _of_shape(
    measure: Callable[[RandomEngine, Deadline], Figures], shape_name: str
) -> Callable[[Process, Deadline], Figures]:
    return lambda process, deadline: measure(process.load(shape_name), deadline)


def _measure_transformers(process: Process, deadline: Deadline) -> Figures:
    return measure_transformers(process.setting, process.setting.shapes["1_5b"], deadline)


# In the order of their use. The engine of a group is loaded in the time of its first part. A refusal leaves a limit to
# its process, so it has one of its own.
PARTS = (
    Part("device", "device", 15, _of_setting(measure_device)),
    Part("choice", "device", 20, _of_setting(measure_choice)),
    Part("choice_busy", "device", 20, _of_setting(measure_choice_busy)),
    Part("right", "right", 60, _of_setting(measure_right)),
    Part("warm_1_5b", "1_5b", 20, _of_shape(measure_warm, "1_5b")),
    Part("tree_1_5b", "1_5b", 10, _of_shape(measure_tree, "1_5b")),
    Part("prefill_1_5b", "1_5b", 10, _of_shape(measure_prefill, "1_5b")),
    Part("scale_1_5b", "1_5b", 40, _of_shape(measure_scale, "1_5b")),
    Part("warm_7b", "7b", 25, _of_shape(measure_warm, "7b")),
    Part("tree_7b", "7b", 10, _of_shape(measure_tree, "7b")),
    Part("prefill_7b", "7b", 10, _of_shape(measure_prefill, "7b")),
    Part("scale_7b", "7b", 50, _of_shape(measure_scale, "7b")),
    Part("refusal", "refusal", 10, _of_shape(measure_refusal, "1_5b")),
    Part("memory", "memory", 60, _of_setting(measure_memory)),
    Part("transformers", "transformers", 90, _measure_transformers),
)


def find_parts(names: Sequence[str]) -> list[Part]:
    """The parts of these names, in the order of their use; all of them if there are no names."""
    return [part for part in PARTS if not names or part.name in names]


def run_parts(setting: Setting, parts: Sequence[Part], save: Callable[[Results], None]) -> None:
    """Measures one part after the other, and saves after each. A part that fails leaves a note."""
    results = Results()
    with ExitStack() as owner:
        process = Process(setting, owner)
        for part in parts:
            began_at = time.monotonic()
            try:
                results.figures |= part.measure(process, Deadline(part.budget_s))
            except Exception as error:  # whatever fails, the other parts are measured
                traceback.print_exc()
                results.notes[part.name] = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            results.figures[f"seconds_{part.name}"] = time.monotonic() - began_at
            results.done.append(part.name)
            save(results)
