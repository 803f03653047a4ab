"""Whether what a part of a benchmark measures has changed since."""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any  # Any: JSON

_ROOT = Path(__file__).parents[1]
_PRODUCT = ("trie_cache", "inference", "lsp_server", "midtoken", "model_repository", "models/default")


def describe_age(benchmark: str, stamp: Mapping[str, Any], root: Path = _ROOT) -> str | None:
    """What is wrong with the commit that a part was measured at; None if the code is still the same."""
    commit, changed = stamp["commit"].rstrip("+"), stamp["commit"].endswith("+")
    own = "tests/reliability" if benchmark == "reliability" else f"benchmarks/{benchmark}.py"
    command = ["git", "rev-list", "--count", f"{commit}..HEAD", "--", *_PRODUCT, own]
    counted = subprocess.run(command, cwd=root, capture_output=True, text=True)
    if counted.returncode != 0:
        return f"its commit {commit[:8]} is not in the repository"
    faults = [f"{counted.stdout.strip()} commits since {commit[:8]} ({stamp['date'][:10]}) changed what it measures"]
    faults = [] if counted.stdout.strip() == "0" else faults
    faults += ["the tree that was measured differed from its commit"] if changed else []
    return "; ".join(faults) or None
