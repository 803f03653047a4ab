from pathlib import Path

from benchmarks.corpora.cuts import Cut
from benchmarks.measures.draft_gain import find_held_out_prefixes, find_repeated_prefixes, measure_draft_gain
from inference.config import EngineConfig

_FUNCTION = "def read_all_lines(path):\n    with open(path, encoding='utf-8') as file:\n        return list(file)\n"
_CUT = Cut("identifier", "a.py", _FUNCTION + "\n\nread_all", "_lines", "(path)\n", 8)


def test_the_repeated_text_ends_with_what_stands_before_the_cursor_too() -> None:
    [held_out], [repeated] = find_held_out_prefixes([_CUT]), find_repeated_prefixes([_CUT])

    assert held_out == _CUT.prefix
    assert repeated.startswith(_CUT.prefix + _CUT.run_end)
    assert repeated.endswith(held_out[-300:])


def test_text_that_is_typed_again_takes_fewer_passes_than_tokens_and_stays_the_same() -> None:
    gain = measure_draft_gain(EngineConfig(Path("models/default")), [_FUNCTION * 3 + "\n\ndef read_a"])

    assert gain.num_different == 0
    assert gain.tokens_per_forward > gain.tokens_per_forward_without
