import os
from pathlib import Path

import pytest

from lsp_server.privacy.spellings import LinkLoopError, iter_spellings


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path.resolve()


def test_each_path_on_the_way_of_a_chain_of_links_is_a_spelling(folder: Path) -> None:
    (folder / "hidden").mkdir()
    (folder / "link").symlink_to("hidden/through")
    (folder / "hidden" / "through").symlink_to(folder / "real")
    names = ["link", "hidden/through", "real"]
    assert list(iter_spellings(str(folder / "link"))) == [str(folder / name) for name in names]


def test_a_parent_after_a_link_is_that_of_its_target(folder: Path) -> None:
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "link").symlink_to("a/b")
    *_, last = iter_spellings(f"{folder}/link/../x")
    assert last == str(folder / "a" / "x") == os.path.realpath(f"{folder}/link/../x")


def test_a_file_that_does_not_exist_has_the_path_it_will_have(folder: Path) -> None:
    assert list(iter_spellings(f"{folder}/new/./x.py")) == [f"{folder}/new/x.py"]


def test_a_loop_of_links_is_an_error(folder: Path) -> None:
    (folder / "a").symlink_to("b")
    (folder / "b").symlink_to("a")
    with pytest.raises(LinkLoopError):
        list(iter_spellings(f"{folder}/a/x.py"))
