import os
from pathlib import Path

import pytest

from lsp_server.privacy.exclusion import UriPath, iter_spellings, read_uri


@pytest.mark.parametrize(
    ("uri", "paths", "elsewhere"),
    [
        ("file:///home/me/a.py", ("/home/me/a.py",), None),
        ("FILE:/home/me/a.py", ("/home/me/a.py",), None),
        ("file://localhost/a%20b/%C3%A9.py", ("/a b/é.py",), None),
        ("file:///a/%FF.py", ("/a/\udcff.py",), None),
        ("file:///a/b%2Fc%23.py", ("/a/b/c#.py",), None),
        ("file:///a/b#c.py", ("/a/b", "/a/b#c.py"), None),
        ("vscode-notebook-cell:/a/b.ipynb#W0", ("/a/b.ipynb", "/a/b.ipynb#W0"), None),
        ("untitled:Untitled-1", ("Untitled-1",), None),
        ("untitled:/home/me/.env", ("/home/me/.env",), None),
        ("file://", (), None),
        ("", (), None),
        ("file:///c%3A/Users/me/.env", ("/c:/Users/me/.env",), "the drive C:"),
        ("file:///C:/a.py", ("/C:/a.py",), "the drive C:"),
        ("file:///c:%5CUsers%5Cme", ("/c:/Users/me",), "the drive C:"),
        ("file://C:/a.py", ("/C:/a.py",), "the drive C:"),
        ("c:\\Users\\me\\.env", ("/c:/Users/me/.env",), "the drive C:"),
        ("file://server/share/a.py", ("/share/a.py",), "the machine server"),
        ("vscode-remote://ssh-remote%2Bhost/home/a.py", ("/home/a.py",), "the machine ssh-remote+host"),
    ],
)
def test_the_path_of_a_uri_is_decoded_and_known_as_one_on_another_machine_or_drive(
    uri: str, paths: tuple[str, ...], elsewhere: str | None
) -> None:
    assert read_uri(uri) == UriPath(paths, elsewhere)


def _list(path: str) -> list[str]:
    return list(iter_spellings(path, os.path.islink))


def test_a_parent_after_a_link_is_that_of_its_target(folder: Path) -> None:
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "link").symlink_to("a/b")
    *_, last = _list(f"{folder}/link/../x")
    assert last == str(folder / "a" / "x") == os.path.realpath(f"{folder}/link/../x")


def test_a_file_that_does_not_exist_has_the_path_it_will_have(folder: Path) -> None:
    assert _list(f"{folder}/new/./x.py") == [f"{folder}/new/x.py"]


def test_a_loop_of_links_is_an_error(folder: Path) -> None:
    (folder / "a").symlink_to("b")
    (folder / "b").symlink_to("a")
    with pytest.raises(OSError, match="Too many levels"):
        _list(f"{folder}/a/x.py")
