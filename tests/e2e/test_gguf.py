"""One setting names a GGUF file, parts of one, one of a hub or one of Ollama, and completions come from it."""

import hashlib
import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks.baselines.gguf_file import Precision, write_gguf
from midtoken.installed import find_bundled_model
from tests.support.hub import Repository, run_hub
from tests.support.lsp_editor import Script, StartEditor, build_capabilities, wait_for
from tests.support.neovim_editor import NODE, OpenEditor

pytestmark = pytest.mark.e2e

_NEEDS_LLAMA_CPP = pytest.mark.skipif(find_spec("llama_cpp") is None, reason="make gguf builds llama.cpp")


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundled model as a GGUF file."""
    path = tmp_path_factory.mktemp("gguf") / "python-6m.Q8_0.gguf"
    write_gguf(find_bundled_model(), path, Precision.Q8_0)
    return path


def _name_ollama(gguf: Path, tmp_path: Path) -> str:
    digest = hashlib.sha256(gguf.read_bytes()).hexdigest()
    manifest, blobs = (
        tmp_path / "OLLAMA_MODELS/manifests/registry.ollama.ai/library/python/6m",
        tmp_path / "OLLAMA_MODELS/blobs",
    )
    for folder in (manifest.parent, blobs):
        folder.mkdir(parents=True)
    (blobs / f"sha256-{digest}").symlink_to(gguf)
    layers = [{"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{digest}"}]
    manifest.write_text(json.dumps({"layers": layers}))
    return "ollama:python:6m"


@pytest.mark.parametrize("is_of_ollama", [False, True])
@_NEEDS_LLAMA_CPP
def test_neovim_completes_with_a_gguf_file_and_with_a_model_of_ollama(
    is_of_ollama: bool, gguf: Path, own_lsp: Script, open_editor: OpenEditor, tmp_path: Path
) -> None:
    model = _name_ollama(gguf, tmp_path) if is_of_ollama else str(gguf)
    editor = open_editor(own_lsp.command, NODE, model=model)
    editor.wait_for(lambda: editor.status, "midtoken: ready", 60)
    editor.type("Goreturn Nod")
    editor.wait_for(lambda: str(editor.ghost)[:1], "e", 60)


def test_neovim_says_why_a_gguf_file_cannot_be_run(
    gguf: Path, own_lsp: Script, open_editor: OpenEditor, tmp_path: Path
) -> None:
    path = tmp_path / "cut.gguf"
    path.write_bytes(gguf.read_bytes()[:100_000])
    editor = open_editor(own_lsp.command, NODE, model=str(path))
    editor.wait_for(lambda: "cut.gguf has no whole metadata: it is cut off or damaged" in editor.status, True, 60)


@_NEEDS_LLAMA_CPP
async def test_the_parts_of_a_gguf_model_of_a_hub_are_downloaded_and_complete(
    own_lsp: Script, start_editor: StartEditor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_gguf(find_bundled_model(), tmp_path / "m.gguf", Precision.Q8_0, num_parts=2)
    parts = {f"q8/{path.name}": path.read_bytes() for path in tmp_path.glob("m-*.gguf")}
    assert sorted(parts) == ["q8/m-00001-of-00002.gguf", "q8/m-00002-of-00002.gguf"]
    with run_hub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        hub.repositories["someone/python-GGUF"] = Repository.of({**parts, "other.gguf": b"x"})
        setting = {"model": "someone/python-GGUF:q8/m-00002-of-00002.gguf"}
        editor = await start_editor(own_lsp, build_capabilities(shows_progress=True), setting)
        editor.open("class Node:\n    pass\n\n\ndef make():\n    return Nod")
        await wait_for(lambda: any(report[:2] == (None, "ready") for report in editor.reports), 60)
        assert (await editor.ghost(5, 14)).insert_text == "Node"
    told = [report[3] for report in editor.reports if report[2] == "downloading"]
    assert told[0].startswith("downloading someone/python-GGUF (licence: apache-2.0), 0 of 7 MB")
