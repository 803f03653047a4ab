from benchmarks.corpora.visits import draw_visits
from models.training.corpus import SourceFile

_LINES = "".join(f"    first_{index} = second_{index} + third(fourth_{index})\n" for index in range(300))
_FILES = [SourceFile("test", f"file_{index}.py", f"def function_{index}():\n{_LINES}") for index in range(6)]


def test_the_text_ends_at_the_cursor_and_begins_with_a_visible_character() -> None:
    for visit in draw_visits(_FILES, 40, seed=1):
        assert visit.cut.prefix.endswith(visit.text)
        assert not visit.text[0].isspace()
        assert len(visit.text) > 300


def test_earlier_text_lacks_the_last_three_keys() -> None:
    for visit in draw_visits(_FILES, 40, seed=1):
        assert visit.text[:-3] == visit.earlier_text


def test_the_suffix_follows_the_identifier() -> None:
    for visit in draw_visits(_FILES, 40, seed=1):
        assert visit.cut.suffix.startswith(visit.suffix)
        assert visit.suffix


def test_no_file_is_visited_twice_near_its_beginning() -> None:
    visits = draw_visits([SourceFile("test", file.path, file.text[:2000]) for file in _FILES], 40, seed=1)

    assert sorted(visit.cut.path for visit in visits) == [file.path for file in _FILES]
