"""The metadata of a GGUF file as the package `gguf` writes them, and the model folder that is made of it."""

import json
import os
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import gguf
import pytest

from benchmarks.baselines.gguf_file import write_plain_gguf, write_tokenizer_gguf
from inference.errors import LaunchError, ModelError
from inference.healing.loaded_tokenizer import load_tokenizer
from inference.model_folder import check_model_folder
from midtoken.gguf import make_folder, read_metadata
from tests.support.tokenizer_folders import spec_of

_VALUES = {
    "uint8": 200, "int8": -5, "uint16": 60_000, "int16": -300, "uint32": 4_000_000_000, "int32": -70_000,
    "uint64": 2**63, "int64": -(2**40), "float32": 0.5, "float64": 0.1, "bool": True, "string": "é ▁",
    "array": ["a", "", "中"],
}  # fmt: skip


def test_values_of_all_types_are_read(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    for kind, value in _VALUES.items():
        getattr(writer, f"add_{kind}")(f"a.{kind}", value)
    more = {"numbers": [1.5, 2.5], "one": [7], "flags": [True, False]}
    for name, values in more.items():
        writer.add_array(f"a.{name}", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    expected = {f"a.{name}": value for name, value in {**_VALUES, **more}.items()}
    assert read_metadata(tmp_path / "m.gguf") == {"general.architecture": "llama", **expected}


def _replace(start: int, data: bytes) -> Callable[[bytes], bytes]:
    return lambda content: content[:start] + data + content[start + len(data) :]


_DAMAGES: dict[str, list[Callable[[bytes], bytes]]] = {
    "is not a GGUF file; a model is a folder, a GGUF file, or a name": [
        _replace(0, b"GGML"), _replace(0, b"version https://git-lfs.github.com/spec/v1"),
    ],
    "has version 1 of the GGUF format; versions 2 and 3 can be run": [_replace(4, b"\1\0\0\0")],
    "has version 4 of the GGUF format": [_replace(4, b"\4\0\0\0")],
    "has no whole metadata: it is cut off or damaged; download it again": [  # tensors are llama.cpp's to read

        lambda _: b"",
        *(lambda content, size=size: content[:size] for size in (4, 9, 23, 30, 100, 300)),
        _replace(16, b"\xff" * 8),  # values
        _replace(24, b"\xff" * 8),  # bytes of the first key
        _replace(32, b"\xff"),  # no UTF-8
        _replace(24 + 8 + len("general.architecture"), b"\x63"),  # a type that there is not
        lambda content: content[:24] + struct.pack("<Q1s", 1, b"a") + struct.pack("<IIQ", 9, 9, 1) * 5_000,  # in arrays
    ],
}  # fmt: skip
_CASES = [(words, number) for words, damages in _DAMAGES.items() for number in range(len(damages))]


@pytest.mark.parametrize(("words", "number"), _CASES)
def test_what_is_no_whole_file_is_refused(words: str, number: int, tmp_path: Path) -> None:
    path = write_plain_gguf(tmp_path / "m.gguf")
    path.write_bytes(_DAMAGES[words][number](path.read_bytes()))
    with pytest.raises(ModelError) as raised:
        read_metadata(path)
    assert str(raised.value).startswith(f"{path} {words}")


@pytest.mark.parametrize(
    ("at", "data"),
    [
        (24, struct.pack("<Q1sIIQ", 1, b"a", 9, 8, 3 * 10**8)),
        (24, struct.pack("<Q1sIIQ", 1, b"a", 9, 7, 2**28)),
        (24, struct.pack("<Q1sIIQ", 1, b"a", 9, 9, 2**28)),
        (16, struct.pack("<Q", 2**60)),
    ],
    ids=["texts", "bools", "lists", "values"],
)
def test_more_items_than_a_model_has_are_not_read(at: int, data: bytes, tmp_path: Path) -> None:
    path = write_plain_gguf(tmp_path / "m.gguf")
    with path.open("r+b") as file:
        file.truncate(24)
        file.seek(at)
        file.write(data)
        file.truncate(4 * 10**9)  # without taking room
    with pytest.raises(ModelError, match="has no whole metadata"):
        read_metadata(path)


def test_a_folder_or_a_missing_file_cannot_be_read(tmp_path: Path) -> None:
    for path, words in {tmp_path: "Is a directory", tmp_path / "no": "No such file or directory"}.items():
        with pytest.raises(ModelError, match=f"{path} cannot be read: {words}"):
            read_metadata(path)


_SPEC = spec_of("qwen")
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
        "import sys, pathlib, midtoken.gguf as made\n"
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


def test_without_a_place_for_it_no_folder_is_made(tmp_path: Path) -> None:
    path = write_tokenizer_gguf(tmp_path / "m.gguf", _SPEC, "qwen2", **_END)
    folder = make_folder(path)
    shutil.rmtree(folder)
    folder.with_name("new").write_text("in the way")
    with pytest.raises(LaunchError, match=f"cannot write {folder.parent}/new: File exists"):
        make_folder(path)
