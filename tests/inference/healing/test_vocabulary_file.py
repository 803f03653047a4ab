import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers.pre_tokenizers import ByteLevel

from inference.errors import ModelError
from inference.healing.vocabulary_file import (
    BYTE_LEVEL_ALPHABET,
    iter_steps,
    read_added_tokens,
    read_vocabulary,
)
from inference.model_folder import read_object
from trie_cache.trie import Vocabulary

_Json = Any  # the content of a file

_VOCAB = {"a": 0, "Ġnot": 1, "<|end|>": 2, "ab": 3, "b": 4}
_BYTES = {"decoder": {"type": "ByteLevel"}}
_MARKS = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
_FALLBACK = {"type": "Sequence", "decoders": [_MARKS, {"type": "ByteFallback"}]}
_END = {"id": 2, "content": "<|end|>", "special": True}


def _write(folder: Path, spec: _Json, **configs: _Json) -> Path:
    """Writes a tokenizer and the files beside it. By default: byte-level, with an end token."""
    spec = {"model": {"vocab": _VOCAB}, "added_tokens": [_END], **_BYTES, **spec}
    for name, content in {"tokenizer": spec, **configs}.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def _read(folder: Path, num_rows: int | None = None) -> Vocabulary:
    return read_vocabulary(folder, read_object(folder / "tokenizer.json"), num_rows)


@given(st.text())
def test_the_byte_level_alphabet_is_that_of_the_tokenizers_library(text: str) -> None:
    shown = ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(text)

    assert "".join(piece for piece, _ in shown) == "".join(BYTE_LEVEL_ALPHABET[byte] for byte in text.encode())
    assert set(BYTE_LEVEL_ALPHABET) == set(ByteLevel.alphabet())


@pytest.mark.parametrize(
    ("spec", "piece", "expected"),
    [
        (_BYTES, "Ġnot", b" not"),
        (_BYTES, "Ãī", b"\xc3\x89"),
        (_BYTES, "a\u00ad", "a\u00ad".encode()),  # outside the alphabet: the piece is its own text
        (_BYTES, "Ġ日", "Ġ日".encode()),
        ({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}]}}, "Ġa", b" a"),
        ({"decoder": _MARKS}, "▁not", b" not"),
        ({"decoder": {"type": "Metaspace"}}, "▁▁", b"  "),
        ({"decoder": _MARKS}, "<0x41>", b"<0x41>"),  # without byte fallback, it is text
        ({"decoder": _FALLBACK}, "<0x41>", b"A"),
        ({"decoder": _MARKS, "byte_fallback": True}, "<0xE9>", b"\xe9"),
    ],
)
def test_a_token_has_the_bytes_that_it_stands_for(tmp_path: Path, spec: _Json, piece: str, expected: bytes) -> None:
    model = {"vocab": {piece: 0}, "byte_fallback": spec.get("byte_fallback", False)}
    folder = _write(tmp_path, {"decoder": None, **spec, "model": model, "added_tokens": []})

    assert _read(folder).token_bytes == (expected,)


@pytest.mark.parametrize(
    ("added", "expected"),
    [
        ({"content": "<|fim_prefix|>"}, None),  # looks like a control token
        ({"content": "ab", "special": True}, None),
        ({"content": " " * 9}, b" " * 9),
        ({"content": "▁▁", "id": 3}, b"  "),  # the vocabulary has it: there, a mark is a blank
    ],
)
def test_added_tokens_are_special_or_text(tmp_path: Path, added: _Json, expected: bytes | None) -> None:
    added = {"id": 5, "special": False} | added
    spec = {"model": {"vocab": {"a": 0, "▁▁": 3}}, "decoder": _MARKS, "added_tokens": [added]}

    vocabulary = _read(_write(tmp_path, spec))

    assert vocabulary.token_bytes[added["id"]] == (expected or b"")
    assert vocabulary.special_tokens.get(added["content"]) == (added["id"] if expected is None else None)
    assert (added["id"] in vocabulary.special_ids) == (expected is None)


@pytest.mark.parametrize(
    ("configs", "end_ids"),
    [
        ({"config": {"eos_token_id": 3}}, {3}),
        ({"generation_config": {"eos_token_id": [3, 4]}}, {3, 4}),
        ({"generation_config": {"eos_token_id": [3, None]}}, {3}),
        ({"config": {"eos_token_id": None}, "generation_config": {"eos_token_id": [4]}}, {4}),
        ({"config": {"eos_token_id": 3}, "tokenizer_config": {"eos_token": "<|end|>"}}, {2, 3}),
        ({"tokenizer_config": {"eos_token": {"content": "<|end|>", "special": True}}}, {2}),
        ({"tokenizer_config": {"eos_token": "ab"}}, {3}),  # though tokenizer.json does not call it special
        ({"config": {"eos_token_id": [3, 10**9, -1]}, "tokenizer_config": {"eos_token": "<|nothing|>"}}, {3}),
        ({}, set()),
    ],
)
def test_end_tokens_of_all_files_are_special(tmp_path: Path, configs: _Json, end_ids: set[int]) -> None:
    vocabulary = _read(_write(tmp_path, {}, **configs))

    assert vocabulary.end_ids == end_ids
    assert vocabulary.special_ids == end_ids | {2}
    assert [index for index, text in enumerate(vocabulary.token_bytes) if not text] == sorted(end_ids | {2})


@pytest.mark.parametrize(
    "configs",
    [
        {"generation_config": {"eos_token_id": [[5]]}},
        {"generation_config": {"eos_token_id": True}},
        {"generation_config": {"eos_token_id": {"id": 5}}},
        {"config": {"eos_token_id": "5"}},
        {"tokenizer_config": {"eos_token": {"special": True}}},
        {"tokenizer_config": {"eos_token": ["<|end|>"]}},
    ],
)
def test_end_tokens_in_an_unknown_form_are_an_error_with_the_file(tmp_path: Path, configs: _Json) -> None:
    (name,) = configs

    with pytest.raises(ModelError, match=rf"{name}\.json: eos_token.* is .*, but should be"):
        _read(_write(tmp_path, {}, **configs))


@pytest.mark.parametrize(
    ("configs", "named"),
    [
        ({"tokenizer_config": {"eos_token": "<|nothing|>"}}, "<.nothing.>"),
        ({"config": {"eos_token_id": 10**9}}, "1000000000"),
        ({"generation_config": {"eos_token_id": [-1, 7]}, "config": {"vocab_size": 9}}, "-1, 7"),
    ],
)
def test_end_tokens_of_which_none_exists_are_refused_by_name(tmp_path: Path, configs: _Json, named: str) -> None:
    with pytest.raises(ModelError, match=f"names as end of a text what its model does not have: '{named}'"):
        _read(_write(tmp_path, {}, **configs))


def test_rows_beyond_the_tokens_are_padding_and_a_special_token_without_a_row_is_dropped(tmp_path: Path) -> None:
    late = {"id": 480, "content": "<|late|>", "special": True}
    configs = {"config": {"vocab_size": 500}, "tokenizer_config": {"eos_token": "<|late|>"}}
    folder = _write(tmp_path, {"added_tokens": [_END, late]}, **configs)
    vocabulary = _read(folder)
    (folder / "config.json").write_text('{"eos_token_id": 2}')
    shorter = _read(folder, num_rows=450)
    assert vocabulary.token_bytes[5:] == (b"",) * 495
    assert (vocabulary.special_tokens.get("<|late|>"), vocabulary.end_ids) == (480, frozenset({480}))
    assert (shorter.num_rows, shorter.special_ids, shorter.end_ids) == (450, frozenset({2}), frozenset({2}))
    with pytest.raises(ModelError, match=r"tokenizer\.json: token b'b' has id 4.* the model's head has 4 rows"):
        _read(folder, num_rows=4)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tokenizer.json", '{"model": {"type": "BPE", "vocab": {"a": 0}}}', "neither ByteLevel nor SentencePiece"),
        ("config.json", "{", r"cannot read .*config\.json"),
        *(("config.json", f'{{"vocab_size": {size}}}', "vocab_size is ") for size in ('"5"', "5.0", "[5]", "true")),
        ("tokenizer_config.json", "[]", r"tokenizer_config\.json: not an object of JSON"),
    ],
)
def test_broken_files_are_refused(tmp_path: Path, name: str, content: str, message: str) -> None:
    (_write(tmp_path, {}) / name).write_text(content)

    with pytest.raises(ModelError, match=message):
        _read(tmp_path)


def test_steps_inside_sequences_are_listed_in_their_order() -> None:
    inner = {"type": "Sequence", "normalizers": [{"type": "b"}, {"type": "c"}]}
    steps = {"type": "Sequence", "pretokenizers": [{"type": "a"}, inner]}
    assert [step["type"] for step in iter_steps(steps, None, {"type": "d"})] == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("contents", "is_control"),
    [
        (
            (
                "<|fim_prefix|>", "<|im_start|>user", "<｜tool▁calls▁begin｜>", "[INST]", "[/INST]", "<tool_call>",
                "</think>", "<start_of_turn>", "<unused12>", "▁<PRE>", "]<]end[>[", "",
            ),
            True,
        ),
        (("    ", "\n\n", "<b>", "</table>", "<h1>", "<s>", "return", "ü", "▁▁", "[", "<>", "a<b>"), False),
    ],
    ids=["control", "text"],
)  # fmt: skip
def test_an_added_token_is_a_control_token_if_it_looks_like_one_or_the_file_says_so(
    contents: tuple[str, ...], is_control: bool
) -> None:
    for special in (False, True):
        spec = {"added_tokens": [{"id": 3, "content": content, "special": special} for content in contents]}
        assert {each.is_control for each in read_added_tokens(spec)} == {is_control or special}
    specials = {"<s>": True, "</s>": False, "</b>": False}  # Phi-3's first two
    spec = {"added_tokens": [{"id": 3, "content": each, "special": specials[each]} for each in specials]}
    assert [each.is_control for each in read_added_tokens(spec)] == [True, True, False]


def test_the_flags_that_are_set_are_named() -> None:
    flags = {"special": False, "lstrip": True, "rstrip": False}
    [added] = read_added_tokens({"added_tokens": [{"id": 3, "content": "a"} | flags]})
    assert (added.flags, added.is_normalized) == (("lstrip",), False)
    assert read_added_tokens({}) == read_added_tokens({"added_tokens": None}) == ()
