import subprocess
from pathlib import Path

import pytest

from inference.serving.shell_path import to_shell_path

_NAMES = ("a b", "a\nb", "$(touch pwned)", "a;b", "a'b", 'a"b', "a&b", "a\\b", "*", "~", "a\xa0b")


@pytest.mark.parametrize("name", _NAMES)
def test_a_shell_reads_any_path_as_one_word(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "file").touch()

    path = to_shell_path(tmp_path / name, tmp_path, "link")

    subprocess.run(["bash", "-c", f"cat {path}/file"], cwd=tmp_path, check=True)
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize("name", ["models", "modèle", "a-b_c.d", "模型"])
def test_a_path_that_is_one_word_is_not_changed(name: str, tmp_path: Path) -> None:
    assert to_shell_path(tmp_path / name, tmp_path, "link") == tmp_path / name
    assert not (tmp_path / "link").is_symlink()


def test_a_link_from_another_run_is_replaced(tmp_path: Path) -> None:
    to_shell_path(tmp_path / "old place", tmp_path, "link")

    to_shell_path(tmp_path / "new place", tmp_path, "link")

    assert (tmp_path / "link").readlink() == tmp_path / "new place"
