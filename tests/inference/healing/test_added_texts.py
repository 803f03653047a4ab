from inference.healing.text_encoder import AddedTexts
from trie_cache.vocabulary import AddedToken


def _build(*groups: tuple[str, ...]) -> AddedTexts:
    contents = [content for group in groups for content in group]
    ids = {content: index for index, content in enumerate(contents)}
    return AddedTexts([[AddedToken(ids[content], content, False, False, ()) for content in group] for group in groups])


def test_the_longest_added_text_is_found_at_each_position() -> None:
    assert list(_build(("  ", "   ")).split("a     b")) == ["a", "   ", "  ", "b"]


def test_an_added_text_of_the_first_group_is_found_before_one_that_begins_earlier() -> None:
    assert list(_build(("ba",), ("ab",)).split("xabay")) == ["xa", "ba", "y"]


def test_openings_are_where_an_added_text_may_begin_that_goes_beyond_the_end() -> None:
    assert _build(("<table>", "able")).find_openings("x <ta") == [0, 1, 3]


def test_no_opening_is_inside_an_added_text_that_is_found_first() -> None:
    runs = tuple(" " * count for count in range(2, 9))

    assert _build(runs).find_openings("x    ") == [0, 4]


def test_without_added_texts_there_are_no_openings() -> None:
    assert _build().find_openings("x") == []
