"""The check of tokenizers must find each kind of defect."""

from dataclasses import replace
from pathlib import Path

from benchmarks.corpora.awkward_text import draw_texts
from benchmarks.corpora.tokenizer_training import (
    BEGIN,
    END,
    Json,
    TokenizerKind,
    add_tokens,
    byte_level,
    template,
    train_byte_level,
    training_texts,
    write_kind,
)
from benchmarks.measures.report import Outcome
from benchmarks.measures.tokenizer_check import (
    Healed,
    LoadedTwice,
    TokenizerRow,
    check_tokenizer,
    find_cut_defect,
    find_start_defect,
    heal,
    load_twice,
)

_GPT2 = byte_level(use_regex=True)
_TEXT = "    return self.value  # for the caller\n"
_TYPED = "    return self.val"


def _load(folder: Path, spec: Json) -> LoadedTwice:
    return load_twice(write_kind(TokenizerKind("toy", lambda: spec), folder / "toy"))


def _check(tokenizer: LoadedTwice) -> TokenizerRow:
    return check_tokenizer("toy", "built", tokenizer, draw_texts([training_texts()], 20, seed=0), num_cuts=60)


def _find_defect(tokenizer: LoadedTwice, healed: Healed) -> str | None:
    ids = tuple(tokenizer.oracle.encode(_TEXT, add_special_tokens=False).ids)
    return find_cut_defect(tokenizer, healed, _TYPED, _TEXT, ids)


def test_an_encoder_that_ignores_added_tokens_is_wrong(tmp_path: Path) -> None:
    spec = train_byte_level(_GPT2)
    plain = _load(tmp_path / "plain", spec)
    with_blanks = _load(tmp_path / "blanks", add_tokens(spec, ["  ", "    "]))

    row = _check(replace(with_blanks, loaded=replace(with_blanks.loaded, encoder=plain.loaded.encoder)))

    assert row.outcome is Outcome.WRONG
    assert "the kept tokens are not the first tokens" in row.reason


def test_wrong_and_lost_bytes_are_found(tmp_path: Path) -> None:
    tokenizer = _load(tmp_path, train_byte_level(_GPT2))
    texts = tuple(token.replace(b"s", b"z") for token in tokenizer.loaded.vocabulary.token_bytes)
    changed = replace(tokenizer.loaded, vocabulary=replace(tokenizer.loaded.vocabulary, token_bytes=texts))
    healed = heal(tokenizer, _TYPED)

    assert "spell" in _check(replace(tokenizer, loaded=changed)).reason
    assert "spell" in str(_find_defect(tokenizer, replace(healed, healed=healed.healed[:-1])))


def test_a_covering_without_the_finished_text_is_found(tmp_path: Path) -> None:
    tokenizer = _load(tmp_path, train_byte_level(_GPT2))
    healed = heal(tokenizer, _TYPED)
    assert _find_defect(tokenizer, healed) is None
    taken = [each for each in healed.crossings if _find_defect(tokenizer, replace(healed, crossings=(each,))) is None]
    others = tuple(each for each in healed.crossings if each not in taken)

    assert "takes 0 crossings" in str(_find_defect(tokenizer, replace(healed, crossings=others)))
    assert "takes 2 crossings" in str(_find_defect(tokenizer, replace(healed, crossings=(*taken, *taken))))


def test_other_start_tokens_are_found(tmp_path: Path) -> None:
    tokenizer = _load(tmp_path, train_byte_level(_GPT2, post_processor=template(BEGIN, "$A", END)))
    assert find_start_defect(tokenizer) is None

    defect = find_start_defect(replace(tokenizer, loaded=replace(tokenizer.loaded, start_ids=(0, 1))))

    assert defect == "texts begin with the tokens (0,), not (0, 1)"
