"""The targets on one H200, and the table of what was measured."""

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.measures.report import Row, Target, build_target_row

_REPORT = "engine_gpu"


@dataclass(frozen=True, slots=True)
class GpuTarget:
    """A target, and the part that measures its figure."""

    part: str
    target: Target


def _at_most(part: str, figure: str, meaning: str, value: float) -> GpuTarget:
    return GpuTarget(part, Target(_REPORT, figure, meaning, at_most=value))


def _at_least(part: str, figure: str, meaning: str, value: float) -> GpuTarget:
    return GpuTarget(part, Target(_REPORT, figure, meaning, at_least=value))


GPU_TARGETS = (
    _at_most("right", "right_wrong_float32", "other tokens than on the CPU in float32, float32", 0),
    _at_most("right", "right_wrong_bfloat16", "other tokens than on the CPU in float32, bfloat16", 0),
    _at_most("memory", "memory_growth_bytes", "memory that a request leaves, bytes", 100),
    _at_least("refusal", "refusal_keeps_engine", "a request without memory is refused, the next one answered", 1),
    _at_most("warm_1_5b", "warm20_ms_1_5b", "warm completion of 20 tokens, 1.5B, median, ms", 30),
    _at_most("warm_7b", "warm20_ms_7b", "warm completion of 20 tokens, 7B, median, ms", 100),
    _at_most("warm_1_5b", "bound_ratio_1_5b", "that time, relative to reading its bytes, 1.5B", 1.3),
    _at_most("warm_7b", "bound_ratio_7b", "that time, relative to reading its bytes, 7B", 1.3),
    _at_most("tree_1_5b", "tree_overhead_1_5b", "what the healing tree adds to a step, 1.5B", 0.05),
    _at_most("tree_7b", "tree_overhead_7b", "what the healing tree adds to a step, 7B", 0.05),
    _at_most("choice", "choice_us_64", "mask and choice for 64 rows, us", 20),
    _at_least("scale_1_5b", "scale_64_1_5b", "tokens a second of 64 sequences, relative to one, 1.5B", 10),
    _at_least("scale_7b", "scale_64_7b", "tokens a second of 64 sequences, relative to one, 7B", 10),
    _at_least("prefill_7b", "prefill_peak_share_7b", "reading 2,000 tokens, share of 989 TFLOP/s, 7B", 0.5),
    _at_least("transformers", "transformers_ratio_1", "speed, relative to transformers, one sequence", 1.0),
    _at_least("vllm", "vllm_ratio_1", "speed, relative to vLLM, one sequence", 1.0),
    _at_least("vllm", "vllm_ratio_64", "speed, relative to vLLM, 64 sequences", 0.8),
)


def add_bounds(figures: Mapping[str, float | bool | None]) -> dict[str, float | bool | None]:
    """The figures with the ratios between a warm completion and the time to read its bytes, where both are known."""
    found = dict(figures)
    speed = figures.get("copy_bytes_per_s")
    for name in ("1_5b", "7b"):
        num_bytes, ms = figures.get(f"warm20_bytes_{name}"), figures.get(f"warm20_ms_{name}")
        if speed and num_bytes and ms:
            found[f"bound_ms_{name}"] = 1e3 * num_bytes / speed
            found[f"bound_ratio_{name}"] = ms * speed / (1e3 * num_bytes)
    return found


def build_rows(
    figures: Mapping[str, float | bool | None], notes: Mapping[str, str], *, is_rehearsal: bool
) -> list[Row]:
    """The table: each figure beside its target, or why there is none. In a rehearsal, nothing is met or missed."""
    rows: list[Row] = []
    for each in GPU_TARGETS:
        value = figures.get(each.target.figure)
        row = dict(build_target_row(each.target, value)) | {"benchmark": each.part}
        if is_rehearsal:
            row["met"] = "rehearsal"
        rows.append(row | {"note": notes.get(each.part, "" if value is not None else "not measured")})
    return rows
