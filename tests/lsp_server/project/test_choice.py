"""What is told of other files, and in which order."""

from collections.abc import Mapping

from lsp_server.project.choice import choose_declarations
from lsp_server.project.declarations import summarize
from lsp_server.project.grammar import BY_EXTENSION, load_grammar
from lsp_server.project.index import Index


def _choose(files: Mapping[str, str], path: str, max_bytes: int = 10_000) -> dict[str, str]:
    language, index = BY_EXTENSION["." + path.rpartition(".")[2]], Index()
    summaries = {name: summarize(text.encode(), load_grammar(language)) for name, text in files.items()}
    for name, summary in summaries.items():
        index.put(name, "", summary)
    return choose_declarations(index, path, language, summaries[path], files[path], max_bytes)


_BIRDS = """
class Bird:
    wings: int
    def fly(self, height: int) -> "Nest": ...
    def _flap(self): ...
class Tree: ...
"""


def test_an_imported_name_is_told_with_its_signature_and_members() -> None:
    told = _choose({"a.py": "from birds import Bird\n", "birds.py": _BIRDS}, "a.py", 120)
    assert told == {"birds.py": "class Bird: wings, fly\nTree\n"}


def test_a_class_may_use_what_its_base_hides_from_others() -> None:
    told = _choose({"a.py": "from birds import Bird\nclass Owl(Bird): ...\n", "birds.py": _BIRDS}, "a.py")
    assert told["birds.py"].startswith("class Bird: wings, fly, _flap\n")


def test_members_of_the_types_that_members_name_are_told() -> None:
    files = {"a.py": "from birds import Bird\n", "birds.py": _BIRDS, "nests.py": "class Nest:\n    eggs: int\n"}
    files["birds.py"] = _BIRDS.replace('"Nest"', "Nest")
    assert _choose(files, "a.py")["nests.py"] == "Nest: eggs\n"


def test_members_of_a_type_that_the_text_names_last_come_first() -> None:
    files = {
        "a.py": "from many import First, Second\nfirst = First()\nsecond = Second()\n",
        "many.py": "class First:\n    one: int\nclass Second:\n    two: int\n",
    }
    signatures = len("many.py:\nclass First\nclass Second\n") + 2
    for room, expected in ((20, ("two", "one")), (8, ("two",))):
        told = _choose(files, "a.py", signatures + 40 + room)["many.py"]
        assert [name for name in ("two", "one") if name in told] == [*expected][: 1 + ("one" in told)]


def test_a_name_that_many_files_declare_is_told_only_where_it_is_imported() -> None:
    files = {f"b{number}.py": "class Common:\n    member: int\n" for number in range(4)}
    assert _choose({"a.py": "x = Common\n", **files}, "a.py") == {}
    told = _choose({"a.py": "from b2 import Common\n", **files}, "a.py")
    assert set(told) == {"b2.py"}


def test_of_another_package_of_go_only_exported_names_are_told() -> None:
    files = {
        "a/a.go": 'package a\nimport "example.com/me/mod/b"\n',
        "a/c.go": "package a\nfunc hidden() {}\n",
        "b/b.go": "package b\nfunc Shown() {}\nfunc secret() {}\n",
    }
    assert _choose(files, "a/a.go") == {"b/b.go": "Shown\n", "a/c.go": "hidden\n"}


def test_names_of_whole_modules_come_before_others_of_files_with_an_imported_name() -> None:
    others = [f"other_{number}" for number in range(20)]
    files = {
        "a.py": "from part import one\nimport whole\n",
        "part.py": "def one(): ...\n" + "".join(f"def {name}(): ...\n" for name in others),
        "whole.py": "def first(): ...\n",
    }
    told = _choose(files, "a.py", 150)
    assert told["whole.py"] == "first\n"
    assert "other_1" in told["part.py"]
    assert others[-1] not in told["part.py"]


def test_of_an_imported_name_whose_signature_has_no_room_the_name_is_told() -> None:
    files = {"a.py": "from many import short, long\n", "many.py": f"def long({'x' * 90}): ...\ndef short(): ...\n"}
    assert _choose(files, "a.py", 100) == {"many.py": "long\ndef short()\n"}


def test_members_of_a_base_whose_name_has_three_letters_are_told() -> None:
    files = {"a.py": "from flask import Flask\n", "flask.py": "class Flask(App): ...\n"}
    files["base.py"] = "class App:\n    config: dict\n"
    assert _choose(files, "a.py")["base.py"] == "App: config\n"


def test_no_more_than_the_room_is_told() -> None:
    files = {"a.py": "import many\n", "many.py": "".join(f"def name_{n}(): ...\n" for n in range(100))}
    for max_bytes in (0, 100, 500):
        told = _choose(files, "a.py", max_bytes)
        assert sum(len(f"{path}:\n{text}".encode()) for path, text in told.items()) <= max_bytes
