import dataclasses
import math

import pytest

from inference.likely_text import LikelyText
from inference.protocol.completion import CompletionChunk, ExplainedNode, Healing
from midtoken.answer import mark_blanks
from midtoken.api import Completion
from midtoken.playground.pictures import (
    Cell,
    HealingPicture,
    Question,
    draw_healing,
    draw_strategy,
)
from tests.support.playground_fakes import EXACT, EXPLANATION

_QUESTION = Question(7, "def make():\n    return Nod", "\n")


def _draw(prefix: str, healed_bytes: int, *nodes: ExplainedNode, chosen: tuple[str, ...] = ()) -> HealingPicture:
    explanation = dataclasses.replace(EXPLANATION, nodes=nodes, chosen_tokens=chosen)
    last = dataclasses.replace(EXACT, healed_bytes=healed_bytes, explanation=explanation)
    return draw_healing(Question(1, prefix, ""), Completion(last))


def test_the_text_is_cut_at_the_heal_point() -> None:
    picture = draw_healing(_QUESTION, Completion.from_chunks([EXACT]))
    assert picture.kept_tokens == ("():⏎", "···", "·return")
    assert picture.healed_tokens == ("·N", "od")
    assert picture.num_healed_bytes == 4
    assert picture.cells == (Cell("·", 1), Cell("N", 1), Cell("o", 1), Cell("d", 1))
    assert picture.typed == "return·Nod"


def test_each_crossing_is_a_path_with_its_share_and_the_end_of_its_best_token() -> None:
    paths = draw_healing(_QUESTION, Completion.from_chunks([EXACT])).paths
    assert [path.token_cells for path in paths] == [(), (2,), (2, 2)]
    assert [path.next_token for path in paths] == ["e", "es", "al"]
    assert [path.share for path in paths] == pytest.approx([0.6, 0.3, 0.1])
    assert [path.is_chosen for path in paths] == [True, False, False]
    assert [path.num_shared for path in paths] == [0, 0, 1]  # an earlier path has `N` too


_CHAR = ExplainedNode(None, "", 0, math.log(0.9), "é!", math.log(0.9))
_HALF_CHAR = ExplainedNode(0, "\\xc3", 1, math.log(0.1), "\\xa9\\xc3", math.log(0.1))


@pytest.mark.parametrize(
    ("prefix", "num_healed_bytes", "nodes", "cells", "next_tokens"),
    [
        ("ab", 2, [ExplainedNode(None, "", 0, None, None, None)], [Cell("a", 1), Cell("b", 1)], []),
        ("ab", 0, [ExplainedNode(None, "", 0, 0.0, " c", 0.0)], [], ["·c"]),  # any token follows the cursor
        ("é", 2, [_CHAR, _HALF_CHAR], [Cell("\\xc3", 4), Cell("\\xa9", 4)], ["!", "\\xc3"]),
        ("日é", 5, [ExplainedNode(None, "", 0, 0.0, "日é。", 0.0)], [Cell("日", 2), Cell("é", 1)], ["。"]),
        (
            "\u202ea",
            4,
            [ExplainedNode(None, "", 0, 0.0, "\u202ea\x1b", 0.0)],
            [Cell("\\u202e", 6), Cell("a", 1)],
            ["␛"],
        ),
    ],
    ids=["no crossing", "nothing healed", "divided character", "whole characters", "control characters"],
)
def test_the_healed_bytes_are_shown_by_characters_where_no_token_divides_them(
    prefix: str, num_healed_bytes: int, nodes: list[ExplainedNode], cells: list[Cell], next_tokens: list[str]
) -> None:
    picture = _draw(prefix, num_healed_bytes, *nodes)
    assert list(picture.cells) == cells
    assert [path.next_token for path in picture.paths] == next_tokens


def test_a_confidence_shows_the_pieces_of_a_completion_that_are_as_likely() -> None:
    likely = LikelyText()
    log_probs = tuple(map(math.log, (0.9, 0.5, 0.3, 0.1)))
    likely.add(CompletionChunk("e = first_name", 0, (3, 5, 9, 14), log_probs))
    pieces = draw_strategy(Healing.EXACT, Completion(EXACT, likely)).pieces
    assert [each.shown for each in pieces] == ["e·=", "·", "first_name"]
    for confidence in (0.05, 0.2, 0.4, 0.7, 0.95):
        shown = "".join(each.shown for each in pieces if each.probability >= confidence)
        assert shown == mark_blanks(likely.text[: likely.count_likely(0, confidence)])
