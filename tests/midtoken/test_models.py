"""A model is downloaded from a hub when it is first named, and then is the same folder. A refusal is one sentence."""

import asyncio
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.baselines.gguf_file import write_plain_gguf, write_tokenizer_gguf
from benchmarks.corpora.tokenizer_kinds import TOKENIZER_KINDS
from inference.errors import LaunchError, MidtokenError, ModelError
from inference.model_folder import check_model_folder
from midtoken.cli import main
from midtoken.models import HubModel, fetch_model, find_model
from tests.support.hub import Faults, Hub, Repository, run_hub
from tests.support.servers import find_processes, wait_until

_NAME = "owner/Model-0.5B"
_SPEC = next(kind for kind in TOKENIZER_KINDS if kind.name == "qwen2").build()
_LARGE = os.urandom(3_000_000)
_SMALL = {
    "config.json": b"{}",
    "generation_config.json": b"",
    "tokenizer.json": b"{ }",
    "tokenizer_config.json": b'{"a": 1}',
}
_FILES = {**_SMALL, "model.safetensors": _LARGE}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with one model, which this environment names."""
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "HF_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    with run_hub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        hub.repositories[_NAME] = Repository.of(_FILES)
        yield hub


async def _fetch(name: str = _NAME, **options: Any) -> list[tuple[str, int]]:
    shown = list[tuple[str, int]]()
    await fetch_model(name, lambda *given: shown.append(given), **options)
    return shown


def _read(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


_NAMES: dict[str, tuple[str, str, str] | None] = {
    _NAME: (_NAME, "", "main"),
    "Qwen/Qwen2.5-Coder-0.5B@v1.0": ("Qwen/Qwen2.5-Coder-0.5B", "", "v1.0"),
    "owner/name@refs/pr/4": ("owner/name", "", "refs/pr/4"),
    "owner/name:Name-Q4_K_M.gguf": ("owner/name", "Name-Q4_K_M.gguf", "main"),
    "owner/name:q8/Name-00001-of-00002.gguf@v1": ("owner/name", "q8/Name-00001-of-00002.gguf", "v1"),
    **dict.fromkeys(("owner/name:", "owner/name:x.bin", "owner/name:../x.gguf", "owner/name:/x.gguf", "name:x.gguf")),
    **dict.fromkeys(("owner/name:a/../x.gguf", "ollama:name", "ollama:owner/name", "owner/name.gguf:7b")),
    **dict.fromkeys(("./owner/name", "/owner/name", "../owner", "~/name", "name", "a/b/c", "owner/..", "C:/name")),
    **dict.fromkeys(("owner/name@../../x", "owner/name@a/../x", "owner/name@", "owner/na..me", "é/name", "owner/a\n")),
    **dict.fromkeys(("owner/.name", "-owner/name", "file.gguf", "")),
}  # fmt: skip


@pytest.mark.parametrize("text", _NAMES)
def test_only_owner_and_name_are_a_model_of_a_hub(text: str) -> None:
    model = HubModel.parse(text)
    assert (model and (model.repository, model.file, model.revision)) == _NAMES[text]
    assert model is None or str(model) == text


async def test_only_what_a_model_needs_is_downloaded_and_the_token_goes_to_the_hub_alone(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = (
        "README.md",
        "pytorch_model.bin",
        "modeling.py",
        "vocab.json",
        "onnx/config.json",
        "model.fp16.safetensors",
    )
    hub.repositories[_NAME] = Repository.of({**_FILES, **dict.fromkeys(others, b"x")}, token="hf_mine")
    monkeypatch.setenv("HF_TOKEN", "hf_mine")
    shown = await _fetch()
    assert _read(find_model(_NAME)) == _FILES
    assert hub.store_tokens == {None}
    assert all(re.fullmatch(r"unknown/None; hf_hub/[0-9.]+; python/[0-9.]+", agent) for agent in hub.agents)
    assert shown[0] == ("downloading owner/Model-0.5B (licence: apache-2.0), 0 of 3 MB", 0)
    assert shown[-1] == ("downloading owner/Model-0.5B (licence: apache-2.0), 3 of 3 MB", 100)
    listing, *rest = hub.requests
    assert listing == f"GET /api/models/{_NAME}/revision/main?blobs=true"
    assert sorted({line.split()[1].rpartition("/")[2] for line in rest}) == sorted(filter(_FILES.get, _FILES))


async def test_what_a_hub_names_steers_no_terminal(hub: Hub) -> None:
    hub.repositories[_NAME] = Repository.of(_FILES, tags=("license:\x1b[2J\nfailed: x",))
    shown = await _fetch()
    assert shown[0][0] == "downloading owner/Model-0.5B (licence: [2Jfailed: x), 0 of 3 MB"
    hub.repositories[_NAME].add({"config.json": b"{}", "\x1b.bin": b""})
    with pytest.raises(ModelError, match=r"only as a pickle \(\.bin\), which can run any code"):
        await _fetch(is_anew=True)


async def test_a_password_in_the_address_of_a_hub_is_not_shown(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub.url.replace("//", "//me:secret@"))
    hub.repositories.clear()
    with pytest.raises(ModelError, match=rf"^{hub.url} has no model"):
        await _fetch()


async def test_a_model_in_parts_comes_with_its_index_and_all_of_them(hub: Hub) -> None:
    index = b'{"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}'
    parts = {"model-00001-of-00002.safetensors": b"1", "model-00002-of-00002.safetensors": b"2"}
    files = {**_SMALL, **parts, "model.safetensors.index.json": index}
    hub.repositories[_NAME] = Repository.of({**files, "consolidated.safetensors": b"all of them"})
    await _fetch()
    assert _read(find_model(_NAME)) == files


async def test_a_name_means_the_same_model_until_it_is_asked_for_anew(hub: Hub) -> None:
    await _fetch()
    first = find_model(_NAME)
    hub.repositories[_NAME].add({**_FILES, "config.json": b'{"new": 1}'})
    num_requests = len(hub.requests)
    await _fetch()
    assert (find_model(_NAME), len(hub.requests)) == (first, num_requests)
    for path in first.iterdir():
        path.unlink()
    first.rmdir()  # as by a program that frees space in the cache
    await _fetch()
    assert find_model(_NAME) == first
    assert _read(first) == _FILES
    await _fetch(is_anew=True)
    assert find_model(_NAME) != first
    assert _read(find_model(_NAME))["config.json"] == b'{"new": 1}'
    assert hub.num_sent_bytes == len(_LARGE)  # what both have was downloaded once


@pytest.mark.parametrize("name", ["tiny-q8_0.gguf", "q8/tiny-q8_0.gguf", "q8/tiny-00002-of-00002.gguf"])
async def test_of_a_gguf_model_only_the_named_file_or_all_its_parts_are_downloaded(
    name: str, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "made"))
    files = [write_tokenizer_gguf(tmp_path / "a.gguf", _SPEC, "qwen2", **{"tokenizer.ggml.eos_token_id": 1})]
    names = [name]
    if name.endswith("of-00002.gguf"):
        files.append(write_plain_gguf(tmp_path / "b.gguf", num_parts=2))
        names = [name.replace("00002-of", "00001-of"), name]
    others = dict.fromkeys(("config.json", "other.gguf", "q8/other.gguf", "mmproj.gguf"), b"x")
    contents = dict(zip(names, (file.read_bytes() for file in files), strict=True))
    hub.repositories[_NAME] = Repository.of({**others, **contents})
    shown = await _fetch(f"{_NAME}:{name}")
    assert "downloading owner/Model-0.5B (licence: apache-2.0)" in shown[0][0]
    assert [line.split()[1].rpartition("/")[2] for line in hub.requests[1:]] == [Path(each).name for each in names]
    folder = find_model(f"{_NAME}:{name}")
    check_model_folder(folder)
    linked = folder / os.readlink(folder / "model.gguf")
    assert linked.read_bytes() == contents[names[0]]
    assert linked.name == Path(names[0]).name
    manifest = tmp_path / "ollama/manifests/registry.ollama.ai/library/coder/7b"
    manifest.parent.mkdir(parents=True)
    manifest.write_text("{}")
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "ollama"))
    assert main(["models"]) == 0
    (commit,) = hub.repositories[_NAME].commits
    shown_line = rf"  {_NAME}:{name} +0.00 GB, commit {commit[:7]}, .*/snapshots/{commit}/{name}"
    assert re.search(rf"^{shown_line}\n  ollama:coder:7b$", capsys.readouterr().out, re.MULTILINE)
    for path in linked.resolve().parent.iterdir():  # as by a program that frees space in the cache
        path.unlink()
    await _fetch(f"{_NAME}:{name}")
    check_model_folder(find_model(f"{_NAME}:{name}"))
    with pytest.raises(
        ModelError, match=r"has no no.gguf; its GGUF files are mmproj.gguf, other.gguf, q8/other.gguf, "
    ):
        await _fetch(f"{_NAME}:no.gguf")


async def test_a_gguf_file_that_cannot_be_run_is_refused_when_its_first_megabytes_are_here(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "made"))
    content = write_tokenizer_gguf(tmp_path / "a.gguf", _SPEC, "kimi-k2").read_bytes()
    hub.repositories[_NAME] = Repository.of({"a.gguf": content.ljust(20_000_000)})
    with pytest.raises(ModelError, match=r"/a.gguf: its pre-tokenizer .tokenizer.ggml.pre. is 'kimi-k2'"):
        await _fetch(f"{_NAME}:a.gguf")
    with pytest.raises(ModelError, match=rf"is not on this machine yet: run midtoken models get {_NAME}:a.gguf"):
        find_model(f"{_NAME}:a.gguf")
    [downloaded] = tmp_path.rglob("*.incomplete")
    assert downloaded.stat().st_size < 4_000_000


def test_a_file_and_a_model_of_ollama_are_found_where_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "made"))
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "ollama"))
    monkeypatch.chdir(tmp_path)
    path = write_tokenizer_gguf(tmp_path / "a.gguf", _SPEC, "qwen2", **{"tokenizer.ggml.eos_token_id": 1})
    assert (find_model("a.gguf") / "model.gguf").readlink() == path
    with pytest.raises(ModelError, match="Ollama has not pulled 'a:latest'"):
        find_model("ollama:a")
    path.write_text("text")
    with pytest.raises(ModelError, match=r"a\.gguf is no GGUF file"):
        find_model("./a.gguf")
    assert find_model("no.gguf") == tmp_path / "no.gguf"  # which is refused as a folder


async def test_a_revision_may_have_a_slash(hub: Hub) -> None:
    commit = hub.repositories[_NAME].add({**_FILES, "config.json": b"[]"}, "refs/pr/4")
    await _fetch(f"{_NAME}@refs/pr/4")
    assert find_model(f"{_NAME}@refs/pr/4").name == commit
    with pytest.raises(ModelError, match=r"is not on this machine yet: run midtoken models get owner/Model-0.5B"):
        find_model(_NAME)


@pytest.mark.parametrize("ignores_range", [False, True])
async def test_a_download_goes_on_where_the_connection_was_cut(hub: Hub, ignores_range: bool) -> None:
    hub.faults = Faults(cut_after=1_100_000, num_cuts=2, ignores_range=ignores_range)
    await _fetch()
    assert _read(find_model(_NAME)) == _FILES
    assert hub.num_sent_bytes == len(_LARGE) + (2_200_000 if ignores_range else 0)


async def test_what_is_cancelled_leaves_a_part_with_which_the_next_download_goes_on(hub: Hub, tmp_path: Path) -> None:
    hub.faults = Faults(cut_after=1_000_000, waits_after_cut=True)
    fetching = asyncio.ensure_future(_fetch())
    while hub.num_sent_bytes < 1_000_000:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.2)
    fetching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fetching
    wait_until(lambda: find_processes(tmp_path) == {}, 2)
    with pytest.raises(ModelError, match=r"is not on this machine yet"):
        find_model(_NAME)
    hub.faults = Faults()
    await _fetch()
    assert _read(find_model(_NAME)) == _FILES
    assert hub.num_sent_bytes == len(_LARGE)


async def test_two_editors_download_a_model_once(hub: Hub) -> None:
    hub.faults = Faults(delay_s=0.7)
    shown, _ = await asyncio.gather(_fetch(), _fetch())
    assert _read(find_model(_NAME)) == _FILES
    assert hub.num_sent_bytes == len(_LARGE)
    assert shown[-1][1] == 100


@pytest.mark.parametrize("faults", [{"has_wrong_hash": True}, {"num_more_bytes": -1_000_000}])
async def test_bytes_that_are_not_those_of_the_hub_are_not_used(hub: Hub, faults: dict[str, Any]) -> None:
    hub.faults = Faults(**faults)
    with pytest.raises(
        ModelError, match=r"model.safetensors has another hash than the hub names \([0-9a-f]{64}\), and was deleted"
    ):
        await _fetch()
    hub.faults = Faults()
    await _fetch()
    assert _read(find_model(_NAME)) == _FILES


async def test_the_hash_decides_and_not_the_size(hub: Hub) -> None:
    hub.faults = Faults(num_more_bytes=7)
    await _fetch()
    assert _read(find_model(_NAME)) == _FILES


_TEXTS = {
    (404, "RepoNotFound"): (ModelError, "has no model owner/Model-0.5B; if it is private, set HF_TOKEN"),
    (404, "RevisionNotFound"): (ModelError, "owner/Model-0.5B has no revision main"),
    (403, "GatedRepo"): (
        ModelError,
        "owner/Model-0.5B is gated: accept its conditions at http://127.0.0.1:[0-9]+/owner",
    ),
    (401, None): (ModelError, "does not know the token in HF_TOKEN"),
    (403, None): (ModelError, "refuses owner/Model-0.5B with status 403"),
    (429, None): (LaunchError, "has had too many requests; try again later"),
    (503, None): (LaunchError, "refuses owner/Model-0.5B with status 503"),
}


@pytest.mark.parametrize("answer", _TEXTS)
async def test_what_a_hub_refuses_is_one_sentence(hub: Hub, answer: tuple[int, str | None]) -> None:
    hub.faults = Faults(status=answer[0], error_code=answer[1])
    kind, text = _TEXTS[answer]
    with pytest.raises(kind, match=text) as caught:
        await _fetch()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"{}"])
async def test_an_answer_that_is_not_of_a_hub_is_one_sentence(hub: Hub, body: bytes) -> None:
    hub.faults = Faults(body=body)
    with pytest.raises(MidtokenError, match=r"the answer of http.* cannot be read|is no hub"):
        await _fetch()


async def test_a_gated_model_is_refused_where_its_files_are(hub: Hub) -> None:
    hub.repositories[_NAME] = Repository.of(_FILES, token="hf_other")
    with pytest.raises(ModelError, match=r"is gated: accept its conditions at"):
        await _fetch()


_UNFIT: dict[str, dict[str, bytes]] = {
    "owner/Model-0.5B has no model.safetensors; .* only as a pickle .pytorch_model.bin.": {"pytorch_model.bin": b""},
    "has its weights as GGUF: name the file, owner/Model-0.5B:FILE, of a/q4.gguf, q8.gguf$": {
        "q8.gguf": b"", "a/q4.gguf": b"", "pytorch_model.bin": b"", "config.json": b"",
    },
    "no model.safetensors; .* only as an adapter": {"adapter_model.safetensors": b"", "adapter_config.json": b""},
    "owner/Model-0.5B has no model.safetensors$": {},
    "has an adapter .adapter_config.json.": {"adapter_config.json": b"{}", "model.safetensors": b"x"},
    "is no model that can be run: it has no config.json": {"config.json": b"", "model.safetensors": b"x"},
    "has no tokenizer.json, but vocab.json": {"tokenizer.json": b"", "vocab.json": b"{}", "model.safetensors": _LARGE},
}  # fmt: skip


@pytest.mark.parametrize("sentence", _UNFIT)
async def test_what_is_no_model_is_refused_before_its_weights_are_downloaded(hub: Hub, sentence: str) -> None:
    files = {name: data for name, data in {**_SMALL, **_UNFIT[sentence]}.items() if data or name not in _SMALL}
    hub.repositories[_NAME] = Repository.of(files)
    with pytest.raises(ModelError, match=sentence):
        await _fetch()
    assert hub.num_sent_bytes <= 1


async def test_room_on_the_disk_is_asked_for_first(hub: Hub) -> None:
    hub.faults = Faults(num_more_bytes=10**15)
    with pytest.raises(ModelError, match=r"needs 1,000,000,003 MB more, and the disk of .*/cache/hub has only"):
        await _fetch()
    assert len(hub.requests) == 1


async def test_a_full_disk_is_one_sentence(hub: Hub, tmp_path: Path) -> None:
    (commit,) = hub.repositories[_NAME].commits
    blobs = tmp_path / "cache/hub/models--owner--Model-0.5B/blobs"
    blobs.mkdir(parents=True)
    (blobs / f"{hub.find_hash(_NAME, commit, 'model.safetensors')}.incomplete").symlink_to("/dev/full")
    with pytest.raises(ModelError, match=r"the disk of .*/cache/hub is full; HF_HOME names another place"):
        await _fetch()


@pytest.mark.parametrize("field", ["sha", "blobId"])
async def test_a_hub_cannot_choose_where_files_are_written(hub: Hub, field: str) -> None:
    hub.faults = Faults(evil_field=field)
    with pytest.raises(ModelError, match=r"what answers is no hub: it names no commits and hashes"):
        await _fetch()


async def test_without_a_network_what_another_program_has_downloaded_is_used(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")  # nothing listens there
    with pytest.raises(LaunchError, match=r"cannot reach http://127.0.0.1:1: .*[Cc]onnect"):
        await _fetch()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelError, match=r"is not on this machine yet, and HF_HUB_OFFLINE forbids to ask"):
        await _fetch()
    cached = tmp_path / "cache/hub/models--owner--Model-0.5B"
    folder = cached / "snapshots" / ("a" * 40)
    folder.mkdir(parents=True)
    (cached / "refs").mkdir()
    (cached / "refs/main").write_text("a" * 40)
    for name, data in _FILES.items():
        (folder / name).write_bytes(data)
    await _fetch()
    assert find_model(_NAME) == folder
    assert hub.requests == []


@pytest.mark.usefixtures("hub")
async def test_a_folder_of_that_form_is_named_in_the_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models/mine").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError, match=r"has no model models/mine; .* folder of that name, write ./models/mine"):
        await _fetch("models/mine")
    assert find_model("./models/mine") == tmp_path / "models/mine"
