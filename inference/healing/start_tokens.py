"""The tokens that every text of a model begins with.

The `tokenizer.json` of some families writes none, though their texts begin with one: DeepSeek's names it only in
`tokenizer_config.json`, with `add_bos_token`.
"""

import json
from pathlib import Path
from typing import Any

from inference.errors import ModelError
from trie_cache.vocabulary import Vocabulary


def find_start_ids(written: tuple[int, ...], model_dir: Path, vocabulary: Vocabulary) -> tuple[int, ...]:
    """The first of these that there is: `written` (by the tokenizer's file), the start token that
    `tokenizer_config.json` asks for, the token that ends a text, the start token that is only named.

    Raises ModelError if there is none, or if the model has no row for it.
    """
    config = _read_config(model_dir)
    named = _find_named(config, vocabulary)
    asked = named if config.get("add_bos_token") is True else ()
    start_ids = written or asked or tuple(sorted(vocabulary.end_ids))[:1] or named
    if not start_ids:
        raise ModelError(f"{model_dir} names no token that a text begins or ends with")
    if max(start_ids) >= vocabulary.num_rows:
        raise ModelError(
            f"{model_dir / 'tokenizer.json'}: texts begin with the token {max(start_ids)}, but the model's head has "
            f"{vocabulary.num_rows} rows; the tokenizer is of another model"
        )
    return start_ids


def _read_config(model_dir: Path) -> Any:  # the content of the file, an object: `Vocabulary.from_folder` has read it
    path = model_dir / "tokenizer_config.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _find_named(config: Any, vocabulary: Vocabulary) -> tuple[int, ...]:
    named = config.get("bos_token")
    token_id = vocabulary.special_id(str(named["content"] if isinstance(named, dict) else named))
    return () if token_id is None else (token_id,)
