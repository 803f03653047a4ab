"""What the model is told of the other files of a project.

- told share: names of four letters and more that a file uses for the first time, that a file which it imports
  declares, and that stand in what is told; the same for names that another file of the project declares. Only the file
  itself is open, up to the line above. `benchmarks.measures.used_names` knows who declares a name.
- told bytes: of what is told there.
- index: processor time and memory of the process that reads 10,000 files, and the time until one that has changed is
  read.
- typing: what it costs somebody who types to have the project told: see `benchmarks.measures.told_typing`.

    python -m benchmarks.context [--output FOLDER] [--only PART ...] [--short]
"""

from functools import partial

from benchmarks.measures.index_cost import measure_index
from benchmarks.measures.report import Part, Target, run_parts
from benchmarks.measures.teller import tell
from benchmarks.measures.told_names import measure_told
from benchmarks.measures.told_typing import measure_typing

_SEED = 1

_TARGETS = (
    Target("told_share_python", "names of imported files that are told, Python", at_least=0.6),
    Target("told_share_typescript", "the same in TypeScript", at_least=0.45),
    Target("told_share_go", "the same in Go", at_least=0.45),
    Target("told_share_rust", "the same in Rust", at_least=0.45),
    Target("told_share_other", "names of other files of the project that are told", at_least=0.15),
    Target("told_bytes_python", "median bytes of what is told, Python", at_most=2000),
    Target("told_bytes_typescript", "the same in TypeScript", at_most=2000),
    Target("told_bytes_go", "the same in Go", at_most=2000),
    Target("told_bytes_rust", "the same in Rust", at_most=2000),
    Target("index_files", "files in an index", at_least=10_000),
    Target("index_cpu_s", "processor time to read them, s", at_most=60),
    Target("index_memory_mb", "memory of the process, MB", at_most=120),
    Target("index_change_ms", "until a changed file is read, ms", at_most=50),
    Target("context_reads_le_1_share", "keys that read ≤ 1 context token, while the project is told", at_least=0.97),
    Target("prefetched_share", "first keys at a place that find their context read, the same", at_least=0.9),
    Target("ghost_ratio", "key to ghost text, median, to that where nothing is told", at_most=1.03),
)


def main() -> None:
    parts: dict[str, Part] = {
        "told": partial(measure_told, tell, _SEED),
        "index": measure_index,
        "typing": partial(measure_typing, _SEED),
    }
    run_parts("context", parts, _TARGETS)


if __name__ == "__main__":
    main()
