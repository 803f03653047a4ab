"""What README.md says of its first example is what the model writes, and its example of the library runs."""

import re
from pathlib import Path

import pytest

import midtoken
from benchmarks.corpora.real_model import REAL_FOLDER

_README = Path("README.md").read_text()
_PREFIX, _LIBRARY = re.findall(r"```python\n(.*?)\n```", _README, re.DOTALL)


@pytest.mark.skipif(not REAL_FOLDER.exists(), reason="make real-model gets it")
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_the_example_is_completed_as_it_says_with_and_without_healing(dtype: str, tmp_path: Path) -> None:
    without, healed = re.findall(r"^\| with(?:out)? midtoken \| `(.*)` \|$", _README, re.MULTILINE)
    start = _PREFIX[_PREFIX.rindex("\n") + 1 :].lstrip()
    with midtoken.load(REAL_FOLDER, dtype=dtype, num_threads=1, graph_dir=tmp_path) as model:
        for strategy, line in (("none", without), ("exact", healed)):
            completion = model.complete(_PREFIX, strategy=strategy, max_tokens=16, extent="single_line")
            assert start + completion.text == line


def test_the_example_of_the_library_runs(capsys: pytest.CaptureFixture[str]) -> None:
    exec(_LIBRARY, {})
    first, *tokens = capsys.readouterr().out.splitlines()
    assert (first[0], tokens[0][0]) == ("e", "e")
