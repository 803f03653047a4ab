"""The metadata of a GGUF file as the package `gguf` writes them; what is no whole file is refused in one sentence."""

import struct
from collections.abc import Callable
from pathlib import Path

import gguf
import pytest

from benchmarks.baselines.gguf_file import write_plain_gguf
from inference.errors import ModelError
from midtoken.gguf_file import find_parts, read_metadata

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
    "was written for big-endian machines": [_replace(4, b"\0\0\0\3")],
    "has version 1 of the GGUF format; versions 2 and 3 can be run": [_replace(4, b"\1\0\0\0")],
    "has version 4 of the GGUF format": [_replace(4, b"\4\0\0\0")],
    "has no whole metadata: it is cut off or damaged; download it again": [  # tensors are llama.cpp's to read

        lambda _: b"",
        *(lambda content, size=size: content[:size] for size in (4, 9, 23, 30, 100, 300)),
        _replace(16, b"\xff" * 8),  # values
        _replace(24, b"\xff" * 8),  # bytes of the first key
        _replace(32, b"\xff"),  # no UTF-8
        _replace(24 + 8 + len("general.architecture"), b"\x63"),  # a type that there is not
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


def test_nested_arrays_end_in_a_sentence(tmp_path: Path) -> None:
    path = write_plain_gguf(tmp_path / "m.gguf")
    head, key = path.read_bytes()[:24], b"\1" + b"\0" * 7 + b"a" + b"\x09\0\0\0"
    path.write_bytes(head + key + (b"\x09\0\0\0" + b"\1" + b"\0" * 7) * 5_000)
    with pytest.raises(ModelError, match="has no whole metadata"):
        read_metadata(path)


def test_a_folder_or_a_missing_file_cannot_be_read(tmp_path: Path) -> None:
    for path, words in {tmp_path: "Is a directory", tmp_path / "no": "No such file or directory"}.items():
        with pytest.raises(ModelError, match=f"{path} cannot be read: {words}"):
            read_metadata(path)


def test_all_parts_belong_to_a_part_and_each_has_its_name(tmp_path: Path) -> None:
    names = [f"m-0000{number}-of-00003.gguf" for number in (1, 2, 3)]
    for name in names:
        write_plain_gguf(tmp_path / name, num_parts=3)
    parts = [tmp_path / name for name in names]
    assert find_parts(parts[1]) == parts
    assert read_metadata(parts[2])["split.count"] == 3
    parts[0].rename(tmp_path / "m.gguf")
    with pytest.raises(
        ModelError, match=r"m-00002-of-00003.gguf is a part of a model, and beside it m-00001-of-00003.gguf is m"
    ):
        find_parts(parts[1])
