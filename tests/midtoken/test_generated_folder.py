"""A GGUF file, and a folder without tokenizer.json, become a complete model folder in the cache: once, and right."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.baselines.gguf_file import write_plain_gguf, write_tokenizer_gguf
from benchmarks.corpora.tokenizer_kinds import TOKENIZER_KINDS
from inference.errors import LaunchError, ModelError
from inference.healing.loaded_tokenizer import load_tokenizer
from inference.model_folder import check_model_folder
from midtoken.generated_folder import make_folder

_SPEC = next(kind for kind in TOKENIZER_KINDS if kind.name == "qwen2").build()
_END = {"tokenizer.ggml.eos_token_id": 1}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/midtoken/models"


def test_a_folder_is_made_once_and_anew_when_the_file_changes(tmp_path: Path, cache: Path) -> None:
    path = write_tokenizer_gguf(tmp_path / "Coder 0.5B.Q8_0.gguf", _SPEC, "qwen2", **_END)
    folder = make_folder(path)
    check_model_folder(folder)
    load_tokenizer(folder)
    assert (folder / "model.gguf").readlink() == path
    written = (folder / "tokenizer.json").stat().st_mtime_ns
    assert make_folder(path) == folder
    assert (folder / "tokenizer.json").stat().st_mtime_ns == written

    write_tokenizer_gguf(path, _SPEC, "starcoder", **_END)
    (folder.parent / "new").mkdir()  # of a process that was killed
    changed = make_folder(path)
    assert changed != folder
    assert [each.name for each in folder.parent.iterdir() if each.is_dir()] == [changed.name]
    assert json.loads((changed / "tokenizer.json").read_text())["pre_tokenizer"]["pretokenizers"][0]["type"] == "Digits"
    assert len(list(cache.iterdir())) == 1
    path.unlink()
    with pytest.raises(ModelError, match="has no weights"):
        check_model_folder(changed)


def test_the_folders_of_files_that_are_gone_are_deleted_with_the_next_that_is_made(tmp_path: Path) -> None:
    paths = [write_tokenizer_gguf(tmp_path / f"{name}.gguf", _SPEC, "qwen2", **_END) for name in "abc"]
    folders = [make_folder(path) for path in paths[:2]]
    paths[0].unlink()
    make_folder(paths[2])
    assert [folder.exists() for folder in folders] == [False, True]


def test_parts_are_linked_beside_each_other_and_the_first_is_the_model(tmp_path: Path) -> None:
    names = ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"]
    write_tokenizer_gguf(tmp_path / names[0], _SPEC, "qwen2", **_END)
    write_plain_gguf(tmp_path / names[1], num_parts=2)
    folder = make_folder(tmp_path / names[1])
    assert [(folder / name).readlink() for name in ("model.gguf", names[1])] == [tmp_path / name for name in names]
    check_model_folder(folder)
    (tmp_path / names[1]).write_bytes(b"GGUF")
    with pytest.raises(ModelError, match=f"{names[1]} has no whole metadata"):
        make_folder(tmp_path / names[0])
    (tmp_path / names[1]).rename(tmp_path / "m.gguf")
    with pytest.raises(ModelError, match=f"beside it {names[1]} is missing"):
        make_folder(tmp_path / names[0])
    write_plain_gguf(tmp_path / "m.gguf", num_parts=2)
    with pytest.raises(ModelError, match=r"m.gguf is one of 2 parts of a model, but its name does not say which one"):
        make_folder(tmp_path / "m.gguf")


def test_two_processes_make_one_folder_and_a_killed_one_leaves_none(tmp_path: Path, cache: Path) -> None:
    path = write_tokenizer_gguf(tmp_path / "m.gguf", _SPEC, "qwen2", **_END)
    program = (
        "import sys, pathlib, midtoken.generated_folder as made\n"
        "f = made.make_folder(pathlib.Path(sys.argv[1])); print(f, f.stat().st_ino)"
    )
    slowly = program.replace(
        "f =", "made.json.dumps = lambda _: print('begun', flush=True) or __import__('time').sleep(60); f ="
    )
    command = [sys.executable, "-c", program, str(path)]
    killed = subprocess.Popen([sys.executable, "-c", slowly, str(path)], stdout=subprocess.PIPE, text=True)
    assert killed.stdout is not None
    assert killed.stdout.readline() == "begun\n"
    waiting = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert not any(folder.name.startswith("m-") for folder in cache.glob("*/*"))
    with pytest.raises(subprocess.TimeoutExpired):  # it waits
        waiting[0].wait(1.5)
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()
    folders = {process.communicate(timeout=30)[0] for process in waiting}
    assert len(folders) == 1  # with one inode
    check_model_folder(Path(folders.pop().split()[0]))
    assert [each.name for each in cache.glob("*/*") if each.is_dir()] == [make_folder(path).name]


def test_without_a_place_for_it_no_folder_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_tokenizer_gguf(tmp_path / "m.gguf", _SPEC, "qwen2", **_END)
    folder = make_folder(path)
    shutil.rmtree(folder)
    folder.with_name("new").write_text("in the way")
    with pytest.raises(LaunchError, match=f"cannot write {folder.parent}/new: File exists"):
        make_folder(path)
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    with pytest.raises(LaunchError, match="no home folder"):
        make_folder(path)


def test_a_part_count_that_is_no_number_and_a_cache_that_cannot_be_made_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_tokenizer_gguf(tmp_path / "m.gguf", _SPEC, "qwen2", **{"split.count": "2"})
    with pytest.raises(ModelError, match=r"m.gguf is one of 2 parts of a model"):
        make_folder(path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(path / "cache"))
    with pytest.raises(LaunchError, match=r"cannot make .*: Not a directory; choose another with XDG_CACHE_HOME$"):
        make_folder(path)
