import pytest

from trie_cache.added_tokens import read_added_tokens


def _is_control(content: str, special: bool = False) -> bool:
    [added] = read_added_tokens({"added_tokens": [{"id": 3, "content": content, "special": special}]})
    return added.is_control


@pytest.mark.parametrize(
    "content",
    [
        "<|fim_prefix|>",
        "<|im_start|>user",
        "<｜tool▁calls▁begin｜>",
        "[INST]",
        "[/INST]",
        "<tool_call>",
        "</think>",
        "<start_of_turn>",
        "<unused12>",
        "▁<PRE>",
        "]<]end[>[",
        "",
    ],
)
def test_what_looks_like_a_control_token_is_one(content: str) -> None:
    assert _is_control(content)


@pytest.mark.parametrize(
    "content", ["    ", "\n\n", "<b>", "</table>", "<h1>", "<s>", "return", "ü", "▁▁", "[", "<>", "a<b>"]
)
def test_other_added_tokens_are_text(content: str) -> None:
    assert not _is_control(content)


@pytest.mark.parametrize("content", ["    ", "<s>", "return"])
def test_what_the_file_marks_as_special_is_a_control_token(content: str) -> None:
    assert _is_control(content, special=True)


def test_the_flags_that_are_set_are_named() -> None:
    spec = {"added_tokens": [{"id": 1, "content": "a", "special": False, "lstrip": True, "rstrip": False}]}

    [added] = read_added_tokens(spec)

    assert added.flags == ("lstrip",)
    assert not added.is_normalized


def test_a_file_without_added_tokens_has_none() -> None:
    assert read_added_tokens({}) == read_added_tokens({"added_tokens": None}) == ()
