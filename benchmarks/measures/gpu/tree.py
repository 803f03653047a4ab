"""What the healing tree costs: a step with it beside a step of one token, at the same length.

The two kinds of step alternate. `tree_overhead_…` has pass and choice, as a step of the engine;
`tree_forward_overhead_…` the pass alone.
"""

import time

from benchmarks.measures.gpu.setting import Deadline, Figures, RandomEngine
from benchmarks.measures.gpu.steps import Step, Steps
from benchmarks.measures.report import find_percentile

_NUM_WARM_UP = 3


def measure_tree(loaded: RandomEngine, deadline: Deadline) -> Figures:
    """`tree_…` of a shape."""
    setting, name = loaded.setting, loaded.shape.name
    steps = Steps(loaded)
    kinds = {"decode": steps.build_decode(), "tree": steps.build_healing()}
    forward_ms: dict[str, list[float]] = {kind: [] for kind in kinds}
    step_ms: dict[str, list[float]] = {kind: [] for kind in kinds}
    for number in range(_NUM_WARM_UP + setting.sizes.num_repeats):
        if deadline.is_over and number > _NUM_WARM_UP:
            break
        for kind, step in kinds.items():
            forward, whole = _time_step(loaded, steps, step)
            if number >= _NUM_WARM_UP:
                forward_ms[kind].append(forward)
                step_ms[kind].append(whole)
    forward_medians = {kind: find_percentile(values, 50) or 0.0 for kind, values in forward_ms.items()}
    medians = {kind: find_percentile(values, 50) or 0.0 for kind, values in step_ms.items()}
    return {
        f"tree_overhead_{name}": medians["tree"] / medians["decode"] - 1,
        f"tree_forward_overhead_{name}": forward_medians["tree"] / forward_medians["decode"] - 1,
        f"decode_step_ms_{name}": medians["decode"],
        f"decode_forward_ms_{name}": forward_medians["decode"],
        f"tree_step_ms_{name}": medians["tree"],
        f"tree_branches_{name}": len(kinds["tree"].tree.branch_ids),
        f"tree_steps_{name}": len(step_ms["tree"]),
    }


def _time_step(loaded: RandomEngine, steps: Steps, step: Step) -> tuple[float, float]:
    """Milliseconds of the pass, and of pass and choice."""
    began_at = time.perf_counter()
    rows = steps.forward(step)
    loaded.setting.synchronize()
    forwarded_at = time.perf_counter()
    steps.choose(step, rows)
    chosen_at = time.perf_counter()
    steps.undo(step)
    return 1e3 * (forwarded_at - began_at), 1e3 * (chosen_at - began_at)
