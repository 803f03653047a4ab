import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.corpora.tokenizers.kinds.training import (
    BEGIN,
    END,
    Json,
    TokenizerKind,
    add_tokens,
    byte_level,
    change_model,
    template,
    train_byte_level,
    training_texts,
)
from benchmarks.corpora.tokenizers.tokenizer_kinds import describe_kind, write_kind
from benchmarks.corpora.tokenizers.tokenizer_texts import draw_texts
from benchmarks.measures.tokenizers.tokenizer_check import (
    REFUSED,
    RIGHT,
    WRONG,
    TokenizerFolder,
    TokenizerRow,
    check_subject,
    check_tokenizer,
)
from benchmarks.measures.tokenizers.tokenizer_judge import (
    Healed,
    Subject,
    find_cut_defect,
    find_start_defect,
    heal,
    load_subject,
)

_GPT2 = byte_level(use_regex=True)
_TEXT = "    return self.value  # for the caller\n"
_TYPED = "    return self.val"


def _load(folder: Path, spec: Json) -> Subject:
    return load_subject(write_kind(TokenizerKind("toy", lambda: spec), folder / "toy"))


def _check(subject: Subject) -> TokenizerRow:
    return check_subject("toy", "built", subject, draw_texts([training_texts()], 20, seed=0), num_cuts=60)


def _find_defect(subject: Subject, healed: Healed) -> str | None:
    ids = tuple(subject.oracle.encode(_TEXT, add_special_tokens=False).ids)
    return find_cut_defect(subject, healed, _TYPED, _TEXT, ids)


def test_gpt2_is_right(tmp_path: Path) -> None:
    row = _check(_load(tmp_path, train_byte_level(_GPT2)))

    assert (row.outcome, row.reason, row.num_cuts) == (RIGHT, "", 60)
    assert row.mean_healed_bytes is not None
    assert 0 < row.mean_healed_bytes < 20


def test_an_encoder_that_ignores_added_tokens_is_wrong(tmp_path: Path) -> None:
    spec = train_byte_level(_GPT2)
    plain = _load(tmp_path / "plain", spec)
    with_blanks = _load(tmp_path / "blanks", add_tokens(spec, ["  ", "    "]))

    row = _check(replace(with_blanks, loaded=replace(with_blanks.loaded, encoder=plain.loaded.encoder)))

    assert row.outcome == WRONG
    assert "the kept tokens are not the first tokens" in row.reason


def test_an_encoder_that_ignores_the_pre_tokenizer_is_wrong(tmp_path: Path) -> None:
    spec = train_byte_level(_GPT2)
    unsplit = _load(tmp_path / "unsplit", {**spec, "pre_tokenizer": byte_level()})
    subject = _load(tmp_path / "split", spec)

    row = _check(replace(subject, loaded=replace(subject.loaded, encoder=unsplit.loaded.encoder)))

    assert row.outcome == WRONG


def test_wrong_bytes_of_a_token_are_found(tmp_path: Path) -> None:
    subject = _load(tmp_path, train_byte_level(_GPT2))
    changed = replace(
        subject.loaded.vocabulary,
        token_bytes=tuple(token.replace(b"s", b"z") for token in subject.loaded.vocabulary.token_bytes),
    )

    row = _check(replace(subject, loaded=replace(subject.loaded, vocabulary=changed)))

    assert row.outcome == WRONG
    assert "spell" in row.reason


def test_kept_tokens_that_more_text_changes_are_found(tmp_path: Path) -> None:
    subject = _load(tmp_path, train_byte_level(_GPT2))
    finished_ids = tuple(subject.oracle.encode(_TEXT, add_special_tokens=False).ids)
    beginnings = [tuple(subject.oracle.encode(_TEXT[:cut], add_special_tokens=False).ids) for cut in range(1, 30)]
    unhealed = [(cut, ids) for cut, ids in enumerate(beginnings, 1) if finished_ids[: len(ids)] != ids]
    assert len(unhealed) > 10

    for cut, ids in unhealed:
        defect = find_cut_defect(subject, Healed(ids, b"", (((), b""),)), _TEXT[:cut], _TEXT, finished_ids)

        assert defect == "the kept tokens are not the first tokens of the finished text"


def test_lost_bytes_are_found(tmp_path: Path) -> None:
    subject = _load(tmp_path, train_byte_level(_GPT2))
    healed = heal(subject, _TYPED)

    defect = _find_defect(subject, replace(healed, healed=healed.healed[:-1]))

    assert defect is not None
    assert defect.startswith("the kept tokens and the healed bytes spell")


def test_a_covering_without_the_finished_text_is_found(tmp_path: Path) -> None:
    subject = _load(tmp_path, train_byte_level(_GPT2))
    healed = heal(subject, _TYPED)
    assert _find_defect(subject, healed) is None
    taken = [each for each in healed.crossings if _find_defect(subject, replace(healed, crossings=(each,))) is None]
    assert len(taken) == 1

    others = tuple(each for each in healed.crossings if each not in taken)

    assert "takes 0 crossings" in str(_find_defect(subject, replace(healed, crossings=others)))
    assert "takes 2 crossings" in str(_find_defect(subject, replace(healed, crossings=(*others, *taken, *taken))))


def test_other_start_tokens_are_found(tmp_path: Path) -> None:
    spec = train_byte_level(_GPT2, post_processor=template(BEGIN, "$A", END))
    subject = _load(tmp_path, spec)
    assert find_start_defect(subject) is None

    defect = find_start_defect(replace(subject, loaded=replace(subject.loaded, start_ids=(0, 1))))

    assert defect == "texts begin with the tokens (0,), not (0, 1)"


def test_a_file_that_the_library_cannot_read_is_not_right(tmp_path: Path) -> None:
    spec = change_model(train_byte_level(_GPT2), merges=[["no such", "pieces"]])
    folder = write_kind(TokenizerKind("toy", lambda: spec), tmp_path / "toy")

    assert check_tokenizer(TokenizerFolder("toy", "built", folder), [], num_cuts=0).outcome == REFUSED


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_a_kind_is_written_as_a_model_folder_has_it(name: str, tmp_path: Path) -> None:
    folder = write_kind(TokenizerKind("toy", lambda: train_byte_level(_GPT2)), tmp_path / "toy")

    assert json.loads((folder / name).read_text())


def test_a_kind_is_described_by_the_parts_of_its_file() -> None:
    kind = TokenizerKind("toy", lambda: train_byte_level(_GPT2, normalizer={"type": "NFC"}))

    assert describe_kind(kind) == "built: NFC, ByteLevel, BPE"


def test_a_tokenizer_without_enough_texts_is_not_right(tmp_path: Path) -> None:
    subject = _load(tmp_path, train_byte_level(_GPT2))

    row = check_subject("toy", "built", subject, ["has <|end|> in it", "abc def"], num_cuts=60)

    assert (row.outcome, row.num_cuts) == (WRONG, 6)
    assert "too few texts" in row.reason


def test_only_a_tokenizer_that_composes_characters_may_change_the_text(tmp_path: Path) -> None:
    plain = _load(tmp_path / "plain", train_byte_level(_GPT2))
    composing = _load(tmp_path / "composing", train_byte_level(_GPT2, normalizer={"type": "NFC"}))

    assert not plain.spells("é".encode(), "e\u0301")
    assert composing.spells("é".encode(), "e\u0301")
    assert not composing.spells(b"e", "e\u0301")
