import json

import pytest

from inference.errors import InvalidRequestError
from midtoken.playground.messages import Failure, Question, Waiting, read_question, to_json


def test_a_question_is_read() -> None:
    text = json.dumps({"number": 3, "prefix": "a\n😀", "suffix": ""})
    assert read_question(text) == Question(3, "a\n😀", "")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "{",
        '{"number": 1, "prefix": "a"}',
        '{"number": "1", "prefix": "a", "suffix": ""}',
        '{"number": 1, "prefix": 2, "suffix": ""}',
        "[" * 100_000,
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="an object with number, prefix and suffix"):
        read_question(text)


def test_messages_are_told_apart_by_their_kind() -> None:
    assert json.loads(to_json(Waiting(3))) == {"number": 3, "kind": "waiting"}
    assert json.loads(to_json(Failure(3, "healing", "why"))) == {
        "number": 3,
        "part": "healing",
        "text": "why",
        "kind": "failure",
    }
