import json
from pathlib import Path
from typing import Any

import pytest

from inference.errors import ModelError
from inference.healing.loaded_tokenizer import find_start_ids
from trie_cache.vocabulary import Vocabulary

_BEGIN, _END = 0, 1


def _folder(folder: Path, **config: Any) -> Path:
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def _vocabulary(*end_ids: int) -> Vocabulary:
    return Vocabulary.from_tokens({2: b"a"}, {"<begin>": _BEGIN, "<end>": _END}, end_ids)


@pytest.mark.parametrize("begin", ["<begin>", {"content": "<begin>"}])
def test_a_start_token_that_the_configuration_asks_for_begins_every_text(tmp_path: Path, begin: Any) -> None:
    folder = _folder(tmp_path, bos_token=begin, add_bos_token=True)

    assert find_start_ids((), folder, _vocabulary(_END)) == (_BEGIN,)


def test_what_the_tokenizer_itself_writes_comes_first(tmp_path: Path) -> None:
    folder = _folder(tmp_path, bos_token="<begin>", add_bos_token=True)

    assert find_start_ids((2, 1), folder, _vocabulary(_END)) == (2, 1)


@pytest.mark.parametrize("config", [{}, {"bos_token": "<begin>"}, {"bos_token": None, "add_bos_token": True}])
def test_otherwise_texts_begin_with_the_end_token(tmp_path: Path, config: dict[str, Any]) -> None:
    assert find_start_ids((), _folder(tmp_path, **config), _vocabulary(_END)) == (_END,)
    assert find_start_ids((), tmp_path / "none", _vocabulary(_END)) == (_END,)


def test_without_an_end_token_texts_begin_with_the_start_token_that_is_only_named(tmp_path: Path) -> None:
    assert find_start_ids((), _folder(tmp_path, bos_token="<begin>"), _vocabulary()) == (_BEGIN,)


def test_a_model_that_names_neither_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="names no token that a text begins or ends with"):
        find_start_ids((), _folder(tmp_path), _vocabulary())


def test_a_start_token_that_the_model_has_no_row_for_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="begin with the token 3, but the model's head has 3 rows"):
        find_start_ids((3,), tmp_path, _vocabulary(_END))
