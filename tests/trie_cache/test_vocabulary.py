import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from trie_cache.vocabulary import AddedToken, Vocabulary, VocabularyError, read_added_tokens

_NUM_TOKENS = 290
_TEXT = ["def get_node(self, value) -> Node:\n", "    return 'é – 語' + \"\\t\"\r\n", "not a node, not a 🦉\n"] * 3


def _save(tokenizer: Tokenizer, folder: Path, **configs: Any) -> Path:
    tokenizer.save(str(folder / "tokenizer.json"))
    for name, config in configs.items():
        (folder / f"{name}.json").write_text(json.dumps(config))
    return folder


def _id_of(tokenizer: Tokenizer, name: str) -> int:
    token_id = tokenizer.token_to_id(name)
    assert token_id is not None
    return token_id


def _byte_level() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r" ?\w+|\s+|[^\w\s]+"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=_NUM_TOKENS, special_tokens=["<|end|>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(_TEXT, trainer)
    return tokenizer


def _sentencepiece(byte_fallback: bool = True) -> Tokenizer:
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "A", "▁A", "é", "▁▁", "▁not"]
    vocab = {piece: index for index, piece in enumerate(pieces)}
    merges = [("▁", "A"), ("▁", "▁")]
    tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", byte_fallback=byte_fallback, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            *([decoders.ByteFallback()] if byte_fallback else []),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    return tokenizer


def test_byte_level_tokens_of_a_text_join_to_its_bytes(tmp_path: Path) -> None:
    tokenizer = _byte_level()
    vocabulary = Vocabulary.from_folder(_save(tokenizer, tmp_path))

    for text in [*_TEXT, "\x00\x7f\xa0\xad ÿ🙂"]:
        ids = tokenizer.encode(text).ids
        assert b"".join(vocabulary.token_bytes[index] for index in ids) == text.encode()


def test_byte_level_alphabet_covers_every_byte_once(tmp_path: Path) -> None:
    vocabulary = Vocabulary.from_folder(_save(_byte_level(), tmp_path))

    single = [text[0] for text in vocabulary.token_bytes if len(text) == 1]

    assert sorted(single) == list(range(256))


def test_a_byte_level_token_outside_the_alphabet_has_its_own_text_as_bytes(tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.BPE({"a\u00ad": 0, "Ġ日": 1, "Ġa": 2}, []))
    tokenizer.decoder = decoders.ByteLevel()
    vocabulary = Vocabulary.from_folder(_save(tokenizer, tmp_path))

    assert vocabulary.token_bytes == ("a\u00ad".encode(), "Ġ日".encode(), b" a")
    assert [text.decode() for text in vocabulary.token_bytes] == [tokenizer.decode([index]) for index in range(3)]


def test_sentencepiece_tokens_of_a_text_join_to_its_bytes(tmp_path: Path) -> None:
    tokenizer = _sentencepiece()
    vocabulary = Vocabulary.from_folder(_save(tokenizer, tmp_path))

    ids = tokenizer.encode("A  éA\n語", add_special_tokens=False).ids

    assert b"".join(vocabulary.token_bytes[index] for index in ids) == " A  éA\n語".encode()


def test_sentencepiece_byte_token_has_the_bytes_of_its_letter(tmp_path: Path) -> None:
    vocabulary = Vocabulary.from_folder(_save(_sentencepiece(), tmp_path))

    assert [index for index, text in enumerate(vocabulary.token_bytes) if text == b"A"] == [3 + 0x41, 3 + 256 + 1]


def test_without_byte_fallback_a_byte_token_is_plain_text(tmp_path: Path) -> None:
    vocabulary = Vocabulary.from_folder(_save(_sentencepiece(byte_fallback=False), tmp_path))

    assert vocabulary.token_bytes[3 + 0x41] == b"<0x41>"


def test_byte_fallback_of_the_decoder_alone_is_enough(tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.BPE({"▁": 0, "<0x41>": 1}, []))
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback()])
    vocabulary = Vocabulary.from_folder(_save(tokenizer, tmp_path))

    assert vocabulary.token_bytes == (b" ", b"A")


def test_byte_level_pre_tokenizer_in_a_sequence_is_enough(tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.BPE({"Ġa": 0}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(), pre_tokenizers.ByteLevel()])
    vocabulary = Vocabulary.from_folder(_save(tokenizer, tmp_path))

    assert vocabulary.token_bytes == (b" a",)


def test_added_tokens_are_special_even_if_not_marked_as_special(tmp_path: Path) -> None:
    tokenizer = _byte_level()
    tokenizer.add_tokens([tokenizers.AddedToken("<|fim_prefix|>", special=False)])
    vocabulary = Vocabulary.from_folder(_save(tokenizer, tmp_path))

    fim_id = _id_of(tokenizer, "<|fim_prefix|>")

    assert vocabulary.special_id("<|fim_prefix|>") == fim_id
    assert fim_id in vocabulary.special_ids
    assert vocabulary.token_bytes[fim_id] == vocabulary.token_bytes[_id_of(tokenizer, "<|end|>")] == b""


def test_added_tokens_of_blanks_are_text(tmp_path: Path) -> None:
    tokenizer = _byte_level()
    tokenizer.add_tokens([tokenizers.AddedToken(" " * 9, special=False, normalized=False)])
    vocabulary = Vocabulary.from_folder(_save(tokenizer, tmp_path))

    assert vocabulary.token_bytes[_id_of(tokenizer, " " * 9)] == b" " * 9


def test_added_token_that_is_also_a_sentencepiece_run_of_blanks_keeps_its_blanks(tmp_path: Path) -> None:
    tokenizer = _sentencepiece()
    tokenizer.add_tokens([tokenizers.AddedToken("▁▁", special=False, normalized=False)])
    vocabulary = Vocabulary.from_folder(_save(tokenizer, tmp_path))

    assert vocabulary.token_bytes[_id_of(tokenizer, "▁▁")] == b"  "


def test_the_name_of_an_ordinary_token_is_not_a_special_name(tmp_path: Path) -> None:
    vocabulary = Vocabulary.from_folder(_save(_byte_level(), tmp_path))

    assert vocabulary.special_id("a") is None
    assert vocabulary.special_id("<|nothing|>") is None


@pytest.mark.parametrize(
    "configs",
    [
        {"config": {"eos_token_id": 5}},
        {"generation_config": {"eos_token_id": [5, 6]}},
        {"config": {"eos_token_id": None}, "generation_config": {"eos_token_id": [5]}},
    ],
)
def test_end_tokens_of_the_configuration_have_no_bytes(tmp_path: Path, configs: dict[str, Any]) -> None:
    vocabulary = Vocabulary.from_folder(_save(_byte_level(), tmp_path, **configs))

    assert 5 in vocabulary.end_ids & vocabulary.special_ids
    assert vocabulary.token_bytes[5] == b""


@pytest.mark.parametrize("eos_token", ["<|end|>", {"content": "<|end|>", "special": True}])
def test_end_token_is_found_by_its_name(tmp_path: Path, eos_token: Any) -> None:
    vocabulary = Vocabulary.from_folder(_save(_byte_level(), tmp_path, tokenizer_config={"eos_token": eos_token}))

    assert vocabulary.end_ids == {vocabulary.special_id("<|end|>")}


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
def test_end_tokens_in_an_unknown_form_are_an_error_with_the_file(tmp_path: Path, configs: dict[str, Any]) -> None:
    (name,) = configs

    with pytest.raises(VocabularyError, match=rf"{name}\.json: eos_token.* is .*, but should be"):
        Vocabulary.from_folder(_save(_byte_level(), tmp_path, **configs))


def test_empty_places_in_a_list_of_end_tokens_are_passed_over(tmp_path: Path) -> None:
    configs = {"generation_config": {"eos_token_id": [5, None]}}

    assert Vocabulary.from_folder(_save(_byte_level(), tmp_path, **configs)).end_ids == {5}


def test_rows_beyond_the_tokens_are_padding(tmp_path: Path) -> None:
    folder = _save(_byte_level(), tmp_path, config={"vocab_size": 500})

    assert Vocabulary.from_folder(folder).token_bytes[_NUM_TOKENS:] == (b"",) * (500 - _NUM_TOKENS)
    assert Vocabulary.from_folder(folder, num_rows=450).num_rows == 450


def test_special_token_without_a_row_is_dropped(tmp_path: Path) -> None:
    tokenizer = _byte_level()
    tokenizer.add_special_tokens(["<|late|>"])
    folder = _save(tokenizer, tmp_path, tokenizer_config={"eos_token": "<|late|>"})
    vocabulary = Vocabulary.from_folder(folder, num_rows=_NUM_TOKENS)

    assert vocabulary.special_id("<|late|>") is None
    assert max(vocabulary.special_ids) < vocabulary.num_rows == _NUM_TOKENS
    assert vocabulary.end_ids == frozenset()


def test_ordinary_token_without_a_row_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(VocabularyError, match=r"tokenizer\.json: token .* the model's head has 289 rows"):
        Vocabulary.from_folder(_save(_byte_level(), tmp_path), num_rows=_NUM_TOKENS - 1)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tokenizer.json", "{", "not JSON"),
        ("tokenizer.json", "[]", "not as the tokenizers library writes it"),
        ("tokenizer.json", '{"model": {"type": "WordPiece", "vocab": {}}}', "WordPiece"),
        ("tokenizer.json", '{"model": {"type": "BPE", "vocab": {"a": 0}}}', "neither ByteLevel nor SentencePiece"),
        ("vocab.txt", "a", r"tokenizer\.json: cannot be read"),
        ("tokenizer_config.json", "[]", r"tokenizer_config\.json: not an object of JSON"),
    ],
)
def test_broken_files_are_named_in_the_error(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content)

    with pytest.raises(VocabularyError, match=message) as raised:
        Vocabulary.from_folder(tmp_path)
    assert str(tmp_path) in str(raised.value)


def _read_added(content: str, **flags: bool) -> AddedToken:
    [added] = read_added_tokens({"added_tokens": [{"id": 3, "content": content, "special": False} | flags]})
    return added


@pytest.mark.parametrize(
    "content",
    [
        "<|fim_prefix|>", "<|im_start|>user", "<｜tool▁calls▁begin｜>", "[INST]", "[/INST]", "<tool_call>", "</think>",
        "<start_of_turn>", "<unused12>", "▁<PRE>", "]<]end[>[", "",
    ],
)  # fmt: skip
def test_what_looks_like_a_control_token_is_one(content: str) -> None:
    assert _read_added(content).is_control


@pytest.mark.parametrize(
    "content", ["    ", "\n\n", "<b>", "</table>", "<h1>", "<s>", "return", "ü", "▁▁", "[", "<>", "a<b>"]
)
def test_other_added_tokens_are_text_if_the_file_does_not_mark_them_as_special(content: str) -> None:
    assert not _read_added(content).is_control
    assert _read_added(content, special=True).is_control


def test_the_flags_that_are_set_are_named() -> None:
    added = _read_added("a", lstrip=True, rstrip=False)

    assert added.flags == ("lstrip",)
    assert not added.is_normalized


def test_a_file_without_added_tokens_has_none() -> None:
    assert read_added_tokens({}) == read_added_tokens({"added_tokens": None}) == ()
