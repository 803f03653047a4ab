"""What README.md says of its first example is what the model writes."""

import re
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks.corpora.real_model import REAL_FOLDER
from inference.config import EngineConfig
from inference.engine.assembly import load_engine
from inference.engine.sink import complete
from inference.protocol.completion import CompletionRequest, Extent, Healing


@pytest.mark.skipif(not REAL_FOLDER.exists(), reason="make real-model gets it")
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_the_example_is_completed_as_it_says_with_and_without_healing(dtype: str) -> None:
    readme = Path("README.md").read_text()
    (prefix,) = re.findall(r"```python\n(.*?)\n```", readme, re.DOTALL)
    without, healed = re.findall(r"^\| with(?:out)? midtoken \| `(.*)` \|$", readme, re.MULTILINE)
    start = prefix[prefix.rindex("\n") + 1 :].lstrip()
    with closing(load_engine(EngineConfig(REAL_FOLDER, dtype=dtype, num_threads=1))) as engine:
        for healing, line in ((Healing.NONE, without), (Healing.EXACT, healed)):
            request = CompletionRequest(prefix, max_tokens=16, healing=healing, extent=Extent.SINGLE_LINE)
            assert start + complete(engine, request)[0] == line
