import tracemalloc
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from inference.errors import ModelError
from inference.healing.heal_point import encode_text
from inference.healing.text_encoder import AddedTexts
from inference.healing.tokenizer_file import read_tokenizer_file
from inference.healing.vocabulary_file import AddedToken
from tests.support.tokenizer_folders import ALL_KINDS, any_tokenizer, is_judged
from tests.support.toys import KINDS, texts, toy_tokenizer

all_kinds = pytest.mark.parametrize("kind", ALL_KINDS)
kinds = pytest.mark.parametrize("kind", KINDS)


@all_kinds
@given(text=texts)
@example(text="a▁ ▁")
@example(text="<|fim_prefix|>a<|endoftext|> <unk><0x41><tool_call>")
def test_a_text_gets_the_same_ids_as_from_its_tokenizer_and_they_spell_it_whatever_it_looks_like(
    kind: str, text: str
) -> None:
    toy = any_tokenizer(kind)
    ids = encode_text(toy.encoder, text)
    assert not is_judged(kind, text) or ids == toy.encode(text)
    text = toy.encoder.replace_unspelled(toy.encoder.normalize(text))
    assert toy.join(ids) == ((toy.encoder.find_dummy_prefix(text) + text) if text else "").encode()
    assert toy.vocabulary.special_ids.isdisjoint(ids)


@kinds
@given(text=texts, data=st.data())
def test_the_first_tokens_of_a_beginning_are_the_tokens_of_their_bytes(
    kind: str, text: str, data: st.DataObject
) -> None:
    toy = toy_tokenizer(kind)
    pre_tokens = toy.encoder.split(text)
    assert [piece.end for piece in pre_tokens] == list(accumulate(len(piece.data) for piece in pre_tokens))
    for pre_token in pre_tokens:
        beginning = pre_token.data[: data.draw(st.integers(0, len(pre_token.data)))]
        ids = toy.encoder.encode_beginning(beginning)
        assert toy.join(ids) == beginning
        for num_ids in range(len(ids)):
            assert toy.encoder.encode_beginning(toy.join(ids[:num_ids])) == ids[:num_ids]


def test_only_whole_pre_tokens_are_looked_up_before_merging() -> None:
    toy = toy_tokenizer("llama3")
    unmerged = toy.vocabulary.token_bytes[len(toy.vocabulary.token_bytes) - 8]

    whole, beginning = toy.encoder.encode(unmerged), toy.encoder.encode_beginning(unmerged)

    assert len(whole) == 1
    assert len(beginning) > 1


@kinds
def test_start_ids_are_what_the_tokenizer_puts_before_a_text(kind: str) -> None:
    toy = toy_tokenizer(kind)

    expected = toy.tokenizer.encode("a").ids[: -len(toy.encode("a"))]

    assert toy.encoder.start_ids == tuple(expected)
    assert bool(expected) == (kind == "llama3")


@pytest.mark.parametrize("content", [None, "{", "{}", '{"model": {}}'])
def test_a_tokenizer_file_that_cannot_be_read_is_a_model_error(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content)

    with pytest.raises(ModelError, match=r"tokenizer\.json"):
        read_tokenizer_file(tmp_path)


@pytest.mark.parametrize("kind", ["qwen", "llama2"])
def test_long_pre_tokens_are_not_cached(kind: str) -> None:
    encoder = toy_tokenizer(kind).encoder
    tracemalloc.start()

    for number in range(100):
        encoder.encode(b"as" * 1_500 + str(number).encode())

    num_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert num_bytes < 200_000  # the texts alone are 300 kB


def _build(*groups: tuple[str, ...]) -> AddedTexts:
    contents = [content for group in groups for content in group]
    ids = {content: index for index, content in enumerate(contents)}
    return AddedTexts([[AddedToken(ids[content], content, False, False, ()) for content in group] for group in groups])


def test_the_longest_added_text_of_the_first_group_is_found_first() -> None:
    assert _build(("  ", "   ")).split("a     b") == ["a", "   ", "  ", "b"]
    assert _build(("ba",), ("ab",)).split("xabay") == ["xa", "ba", "y"]


@pytest.mark.parametrize(
    ("contents", "text", "openings"),
    [
        (("<table>", "able"), "x <ta", [0, 1, 3]),
        (tuple(" " * count for count in range(2, 9)), "x    ", [0, 4]),  # none inside one that is found first
    ],
)
def test_openings_are_where_an_added_text_may_begin_that_goes_beyond_the_end(
    contents: tuple[str, ...], text: str, openings: list[int]
) -> None:
    assert _build(contents).find_openings(text) == openings
    assert _build().find_openings(text) == []
