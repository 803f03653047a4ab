import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from inference.errors import ModelError
from inference.healing.token_tree import TokenTree
from inference.model.language_model import SequencePart
from inference.model.onnx.graph_store import CONSTANTS_NAME, GRAPH_NAME, GraphStore
from inference.model.onnx.model import OnnxModel
from tests.support.decoder_folders import change_config, write_decoder
from tests.support.onnx_folder import load_folder

_ROOT = Path(__file__).parents[4]
_SCRIPT = """
import sys
from pathlib import Path
from inference.healing.token_tree import TokenTree
from inference.model.language_model import SequencePart
from tests.support.onnx_folder import load_folder
model = load_folder(Path(sys.argv[1]), graph_dir=Path(sys.argv[2]))
print(model.forward([SequencePart(model.new_cache(), TokenTree((1, 2, 3)))])[0][0].logits.tolist())
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_decoder(tmp_path_factory.mktemp("models") / "llama")


@pytest.fixture(scope="module")
def logits(folder: Path) -> list[float]:
    return _compute(load_folder(folder))


def _compute(model: OnnxModel) -> list[float]:
    result: list[float] = model.forward([SequencePart(model.new_cache(), TokenTree((1, 2, 3)))])[0][0].logits.tolist()
    return result


def _load(folder: Path, cache: Path, dtype: str = "float32") -> list[float]:
    return _compute(load_folder(folder, dtype=dtype, graph_dir=cache))


def _find_entry(cache: Path) -> Path:
    (entry,) = cache.iterdir()
    return entry


def test_a_model_is_converted_once(folder: Path, tmp_path: Path, logits: list[float]) -> None:
    assert _load(folder, tmp_path / "new" / "cache") == logits
    constants = _find_entry(tmp_path / "new" / "cache") / CONSTANTS_NAME
    first = constants.stat()
    assert _load(folder, tmp_path / "new" / "cache") == logits
    assert constants.stat().st_ino == first.st_ino
    assert (tmp_path / "new" / "cache").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("name", [CONSTANTS_NAME, GRAPH_NAME])
@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(b""),
        lambda path: path.unlink(),
    ],
    ids=["truncated", "empty", "missing"],
)
def test_an_entry_that_is_not_whole_is_not_used_but_replaced(
    damage: Callable[[Path], object], name: str, folder: Path, tmp_path: Path, logits: list[float]
) -> None:
    _load(folder, tmp_path)
    entry = _find_entry(tmp_path)
    damage(entry / name)
    assert _load(folder, tmp_path) == logits
    assert _find_entry(tmp_path) == entry
    assert sorted(path.name for path in entry.iterdir()) == [CONSTANTS_NAME, GRAPH_NAME]


def test_other_weights_and_other_precisions_have_other_entries(
    folder: Path, tmp_path: Path, logits: list[float]
) -> None:
    other = write_decoder(tmp_path / "other", rms_norm_eps=0.01)
    cache = tmp_path / "cache"
    assert _load(folder, cache) != _load(other, cache)
    _load(folder, cache, "int8")
    assert len(list(cache.iterdir())) == 3
    weights = other / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-2] + b"\x00\x3f")  # one number
    _load(other, cache)
    assert len(list(cache.iterdir())) == 4
    change_config(other, rms_norm_eps=0.02)
    _load(other, cache)
    assert len(list(cache.iterdir())) == 5
    assert _load(folder, cache) == logits


def test_a_model_that_fails_its_check_is_not_kept(tmp_path: Path) -> None:
    bad = write_decoder(tmp_path / "bad", tie_word_embeddings=True)
    tensors = load_file(bad / "model.safetensors")
    tensors["model.norm.weight"] = np.full(64, np.nan, np.float32)
    save_file(tensors, bad / "model.safetensors")
    with pytest.raises(ModelError, match="infinite or NaN: its weights are damaged"):
        _load(bad, tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_two_processes_that_start_at_once_both_get_the_model(folder: Path, tmp_path: Path, logits: list[float]) -> None:
    command = [sys.executable, "-c", _SCRIPT, str(folder), str(tmp_path)]
    processes = [subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.communicate()[0] for process in processes] == [f"{logits}\n"] * 2
    assert sorted(path.name for path in _find_entry(tmp_path).iterdir()) == [CONSTANTS_NAME, GRAPH_NAME]


def test_a_model_stays_usable_when_its_entry_is_replaced(folder: Path, tmp_path: Path, logits: list[float]) -> None:
    model = load_folder(folder, graph_dir=tmp_path)
    store = GraphStore(tmp_path)
    draft = tmp_path / "draft-other"
    shutil.copytree(_find_entry(tmp_path), draft)
    store.publish(draft, next(path.name for path in tmp_path.iterdir() if path != draft))
    assert _compute(model) == _load(folder, tmp_path) == logits


_needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to another user")


@pytest.mark.parametrize(
    ("mode", "user"),
    [(0o770, -1), (0o707, -1), (0o777, -1), pytest.param(0o755, 12_345, marks=_needs_root)],
)
def test_a_folder_that_others_may_write_to_is_not_used(
    mode: int, user: int, folder: Path, tmp_path: Path, logits: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    cache.chmod(mode)
    os.chown(cache, user, user)  # -1: as it is
    assert _load(folder, cache) == logits
    assert list(cache.iterdir()) == []
    assert "other users may write to" in caplog.text


def test_a_folder_that_cannot_be_made_is_not_needed(
    folder: Path, tmp_path: Path, logits: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    assert _load(folder, tmp_path / "file" / "cache") == logits
    assert "cannot be kept" in caplog.text


def test_without_a_cache_folder_nothing_of_a_converted_model_stays(
    folder: Path, tmp_path: Path, logits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    model = load_folder(folder)
    assert _compute(model) == logits
    assert list(tmp_path.iterdir()) == []
    assert str(tmp_path) in Path("/proc/self/maps").read_text()


def test_where_no_file_can_be_written_the_place_is_said(folder: Path, tmp_path: Path) -> None:
    limit = (
        "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000));"
    )
    command = [sys.executable, "-c", limit + _SCRIPT, str(folder), str(tmp_path)]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True)
    assert "cannot be kept" in done.stderr
    assert (
        f"ModelError: cannot load the model in {folder}: converted, its weights can be written neither" in done.stderr
    )
    assert f"{tempfile.gettempdir()} (File too large)" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_old_entries_and_drafts_are_removed_when_a_model_is_converted(folder: Path, tmp_path: Path) -> None:
    days_ago = {"a" * 64: 70, "b" * 64: 50, "draft-old": 2, "draft-new": 0}
    for name, days in days_ago.items():
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (time.time() - days * 86_400,) * 2)
    _load(folder, tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert names & days_ago.keys() == {"b" * 64, "draft-new"}
    assert len(names) == 3


def test_use_makes_an_entry_young(folder: Path, tmp_path: Path) -> None:
    _load(folder, tmp_path)
    os.utime(_find_entry(tmp_path), (0, 0))
    _load(folder, tmp_path)
    assert _find_entry(tmp_path).stat().st_mtime > time.time() - 3600
