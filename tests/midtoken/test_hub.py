"""A model of a hub is downloaded when it is first named, and then is the same folder.

A refusal is one sentence.
"""

import asyncio
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.baselines.gguf_file import write_plain_gguf, write_tokenizer_gguf
from inference.errors import LaunchError, MidtokenError, ModelError
from inference.model_folder import check_model_folder
from midtoken.cli import main
from midtoken.models import ensure_model_folder, fetch_model
from tests.support.hub import Faults, Hub, Repository, run_hub
from tests.support.servers import find_processes, wait_until
from tests.support.tokenizer_folders import spec_of

_NAME = "owner/Model-0.5B"
_SPEC = spec_of("qwen")
_CONFIG = (Path(__file__).parents[2] / "models/default/config.json").read_bytes()
_LARGE = os.urandom(3_000_000)
_SMALL = {
    "config.json": _CONFIG,
    "generation_config.json": b"{}",
    "tokenizer.json": json.dumps(_SPEC).encode(),
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


async def _fetch_files(name: str = _NAME, **options: Any) -> dict[str, bytes]:
    """The files of the model, once it was downloaded."""
    await _fetch(name, **options)
    return {path.name: path.read_bytes() for path in ensure_model_folder(name).iterdir()}


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
    assert await _fetch_files() == _FILES
    assert hub.store_tokens == {None}
    assert all(re.fullmatch(r"unknown/None; hf_hub/[0-9.]+; python/[0-9.]+", agent) for agent in hub.agents)
    assert shown[0] == ("downloading owner/Model-0.5B (licence: apache-2.0), 0 of 3 MB", 0)
    assert shown[-1] == ("downloading owner/Model-0.5B (licence: apache-2.0), 3 of 3 MB", 100)
    listing, *rest = hub.requests
    assert listing == f"GET /api/models/{_NAME}/revision/main?blobs=true"
    assert sorted({line.split()[1].rpartition("/")[2] for line in rest}) == sorted(filter(_FILES.get, _FILES))


async def test_what_a_hub_names_steers_no_terminal(hub: Hub) -> None:
    hub.repositories[_NAME] = Repository.of(_FILES, tags=("license:\x1b[2J\nfailed: x",))
    assert (await _fetch())[0][0] == "downloading owner/Model-0.5B (licence: [2Jfailed: x), 0 of 3 MB"


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
    assert await _fetch_files() == files


async def test_a_name_means_the_same_model_until_it_is_asked_for_anew(hub: Hub) -> None:
    await _fetch()
    first, num_requests = ensure_model_folder(_NAME), len(hub.requests)
    hub.repositories[_NAME].add({**_FILES, "config.json": _CONFIG + b" "})
    await _fetch()
    assert (ensure_model_folder(_NAME), len(hub.requests)) == (first, num_requests)
    shutil.rmtree(first)  # as by a program that frees space in the cache
    assert await _fetch_files() == _FILES
    assert ensure_model_folder(_NAME) == first
    assert (await _fetch_files(is_anew=True))["config.json"] == _CONFIG + b" "
    assert ensure_model_folder(_NAME) != first
    assert hub.num_sent_bytes == len(_LARGE)  # what both have was downloaded once


@pytest.mark.parametrize("name", ["tiny-q8_0.gguf", "q8/tiny-00002-of-00002.gguf"])
async def test_of_a_gguf_model_only_the_named_file_or_all_its_parts_are_downloaded(
    name: str, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("llama_cpp", reason="make gguf installs it")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "made"))
    end = {"tokenizer.ggml.eos_token_id": 1}
    contents = {name: write_tokenizer_gguf(tmp_path / "a.gguf", _SPEC, "qwen2", **end).read_bytes()}
    if name.endswith("of-00002.gguf"):
        second = write_plain_gguf(tmp_path / "b.gguf", num_parts=2).read_bytes()
        contents = {name.replace("00002-of", "00001-of"): contents[name], name: second}
    first, *_ = contents
    others = dict.fromkeys(("config.json", "other.gguf", "q8/other.gguf", "mmproj.gguf"), b"x")
    hub.repositories[_NAME] = Repository.of({**others, **contents})
    shown = await _fetch(f"{_NAME}:{name}")
    assert "downloading owner/Model-0.5B (licence: apache-2.0)" in shown[0][0]
    assert [line.split()[1].rpartition("/")[2] for line in hub.requests[1:]] == [Path(each).name for each in contents]
    folder = ensure_model_folder(f"{_NAME}:{name}")
    check_model_folder(folder)
    linked = folder / os.readlink(folder / "model.gguf")
    assert (linked.name, linked.read_bytes()) == (Path(first).name, contents[first])
    manifest = tmp_path / "ollama/manifests/registry.ollama.ai/library/coder/7b"
    manifest.parent.mkdir(parents=True)
    manifest.write_text("{}")
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "ollama"))
    assert main(["models"]) == 0
    (commit,) = hub.repositories[_NAME].commits
    shown_line = rf"  {_NAME}:{name} +0.00 GB, commit {commit[:7]}\n    /.*/snapshots/{commit}/{name}"
    assert re.search(rf"^{shown_line}\n  ollama:coder:7b$", capsys.readouterr().out, re.MULTILINE)
    for path in linked.resolve().parent.iterdir():  # as by a program that frees space in the cache
        path.unlink()
    await _fetch(f"{_NAME}:{name}")
    check_model_folder(ensure_model_folder(f"{_NAME}:{name}"))
    with pytest.raises(
        ModelError, match=r"has no no.gguf; its GGUF files are mmproj.gguf, other.gguf, q8/other.gguf, "
    ):
        await _fetch(f"{_NAME}:no.gguf")


async def test_a_gguf_file_is_found_by_its_quantization_if_one_has_it(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("llama_cpp", reason="make gguf installs it")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "made"))
    content = write_tokenizer_gguf(
        tmp_path / "a.gguf", _SPEC, "qwen2", **{"tokenizer.ggml.eos_token_id": 1}
    ).read_bytes()
    names = ("q/m-Q8_0.gguf", "m.Q4_K_M.gguf", "m.IQ4_K_M.gguf", "mmproj-Q8_0.gguf", "a-F16.gguf", "b-f16.gguf")
    hub.repositories[_NAME] = Repository.of(dict.fromkeys(names, content))
    for quantization, name in {"Q8_0": names[0], "q4_k_m": names[1]}.items():
        await _fetch(f"{_NAME}:{quantization}")
        assert (ensure_model_folder(f"{_NAME}:{quantization}") / "model.gguf").readlink().name == Path(name).name
    assert main(["models"]) == 0
    for quantization, words in {
        "F16": "2 files of .* F16: .*, of a-F16.gguf, b-f16.gguf$",
        "Q2_K": "no files of ",
    }.items():
        with pytest.raises(ModelError, match=f"has {words}"):
            await _fetch(f"{_NAME}:{quantization}")


@pytest.mark.parametrize("ignores_range", [False, True])
async def test_a_download_goes_on_where_the_connection_was_cut(hub: Hub, ignores_range: bool) -> None:
    hub.faults = Faults(cut_after=1_100_000, num_cuts=2, ignores_range=ignores_range)
    assert await _fetch_files() == _FILES
    assert hub.num_sent_bytes <= len(_LARGE) + (2_200_000 if ignores_range else 2 * 2**18)


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
        ensure_model_folder(_NAME)
    hub.faults = Faults()
    assert await _fetch_files() == _FILES
    assert hub.num_sent_bytes <= len(_LARGE) + 2**18


async def test_two_editors_download_a_model_once(hub: Hub) -> None:
    hub.faults = Faults(delay_s=0.7)
    shown, files = await asyncio.gather(_fetch(), _fetch_files())
    assert files == _FILES
    assert hub.num_sent_bytes == len(_LARGE)
    assert shown[-1][1] == 100


async def test_bytes_that_are_not_those_of_the_hub_are_not_used_though_it_may_err_in_their_number(hub: Hub) -> None:
    hub.faults = Faults(has_wrong_hash=True)
    with pytest.raises(
        ModelError,
        match=r"model.safetensors does not have the hash that the hub reports \([0-9a-f]{64}\), and was deleted",
    ):
        await _fetch()
    hub.faults = Faults(num_more_bytes=7)
    assert await _fetch_files() == _FILES


_NO_HUB = "the server is not a hub: it reports no commits and hashes"


_REFUSALS: list[tuple[Faults | Repository, type[MidtokenError], str]] = [
    (Faults(404, error_code="RepoNotFound"), ModelError, "has no model owner/Model-0.5B; if it is private, set HF_TOK"),
    (Faults(404, error_code="RevisionNotFound"), ModelError, "owner/Model-0.5B has no revision main"),
    (Faults(401), ModelError, "does not know the token in HF_TOKEN"),
    (Faults(403), ModelError, "refuses owner/Model-0.5B with status 403"),
    (Faults(429), LaunchError, "has had too many requests; try again later"),
    (Faults(503), LaunchError, "refuses owner/Model-0.5B with status 503"),
    (Faults(body=b"<html>"), MidtokenError, "the answer of http.* cannot be read .*; a network that wants you to sign"),
    (Faults(body=b"{}"), MidtokenError, "the answer of http.* cannot be read|is no hub"),
    (Faults(evil_field="sha"), ModelError, _NO_HUB),
    (Faults(evil_field="blobId"), ModelError, _NO_HUB),
    (Faults(num_more_bytes=10**15), ModelError, "needs 1,000,000,003 MB more, and the disk of .*/cache/hub has only"),
    (Repository.of(_FILES, token="hf_other"), ModelError, "is gated: accept its conditions at http://127.0.0.1:.*/own"),
    (Repository.of({**_SMALL, "\x1b.bin": b""}), ModelError, r"only as a pickle \(\.bin\), which can run any code"),
    (
        Repository.of({**_SMALL, "q8.gguf": b"", "a/q4.gguf": b"", "pytorch_model.bin": b""}),
        ModelError,
        "has its weights as GGUF: name the file, owner/Model-0.5B:FILE, of a/q4.gguf, q8.gguf$",
    ),
    (
        Repository.of({**_SMALL, "adapter_model.safetensors": b"", "adapter_config.json": b""}),
        ModelError,
        "no model.safetensors; .* only as an adapter",
    ),
    (
        Repository.of({"adapter_config.json": b"", "adapter_model.safetensors": b""}),
        ModelError,
        "config.json, but an ad",
    ),
    (
        Repository.of({"params.json": b"{}", "tekken.json": b""}),
        ModelError,
        "config.json, but the files of Mistral's own",
    ),
    (
        Repository.of({"config.json": b"{}", "tekken.json": b"", "model.safetensors": b""}),
        ModelError,
        "no tokenizer.json, but",
    ),
    (
        Repository.of({**_FILES, "config.json": b'{"model_type": "mamba", "eos_token_id": 1}'}),
        ModelError,
        "models of the family 'mamba' cannot be run: |without torch, because its family is 'mamba'",
    ),
    (
        Repository.of({**_FILES, "tokenizer.json": b'{"model": {"type": "Unigram"}}'}),
        ModelError,
        "type Unigram is not s",
    ),
    (Repository.of(_SMALL), ModelError, "owner/Model-0.5B has no model.safetensors$"),
    (Repository.of({**_FILES, "adapter_config.json": b"{}"}), ModelError, "has an adapter .adapter_config.json."),
    (
        Repository.of({**_FILES, "config.json": b'{"quantization_config": {"quant_method": "awq"}}'}),
        ModelError,
        "has weights that are quantized by 'awq'",
    ),
    (
        Repository.of({"tokenizer.json": b"", "model.safetensors": _LARGE}),
        ModelError,
        "cannot be run: it has no config.json",
    ),
    (
        Repository.of({"config.json": b"{}", "vocab.json": b"{}", "model.safetensors": _LARGE}),
        ModelError,
        "cannot be run: it has no tokenizer.json$",
    ),
]


@pytest.mark.parametrize(("offered", "kind", "sentence"), _REFUSALS)
async def test_what_cannot_be_had_or_run_is_refused_in_one_sentence_before_its_weights_are_downloaded(
    hub: Hub, offered: Faults | Repository, kind: type[MidtokenError], sentence: str
) -> None:
    if isinstance(offered, Faults):
        hub.faults = offered
    else:
        hub.repositories[_NAME] = offered
    with pytest.raises(kind, match=sentence) as caught:
        await _fetch()
    assert ("\n" in str(caught.value), hub.num_sent_bytes) == (False, 0)


async def test_a_full_disk_is_one_sentence(hub: Hub, tmp_path: Path) -> None:
    (commit,) = hub.repositories[_NAME].commits
    blobs = tmp_path / "cache/hub/models--owner--Model-0.5B/blobs"
    blobs.mkdir(parents=True)
    (blobs / f"{hub.find_hash(_NAME, commit, 'model.safetensors')}.incomplete").symlink_to("/dev/full")
    with pytest.raises(
        ModelError, match=r"cannot write to .*/cache/hub: No space left on device; HF_HOME names another place"
    ):
        await _fetch()


@pytest.mark.parametrize(
    ("variable", "proxy", "bypass", "words"),
    [
        ("ALL_PROXY", "socks5://ann:pw@127.0.0.1:1", "", ": the proxy that ALL_PROXY names cannot be used: it is not"),
        ("HTTP_PROXY", "http://a:port", "", ": the proxy that HTTP_PROXY names cannot be used: it is not http://HOST"),
        ("http_proxy", "127.0.0.1:1", "", " through the proxy that http_proxy names: .*[Cc]onnect"),
        ("ALL_PROXY", "http://127.0.0.1:1", "", " through the proxy that ALL_PROXY names: .*[Cc]onnect"),
        ("HTTP_PROXY", "http://127.0.0.1:1", "127.0.0.1", ": .*[Cc]onnect"),
    ],
)
async def test_what_is_said_of_a_proxy_names_its_variable_and_no_password(
    hub: Hub, variable: str, proxy: str, bypass: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in ((variable, proxy), ("NO_PROXY", bypass), ("HF_ENDPOINT", "http://127.0.0.1:1")):
        monkeypatch.setenv(name, value)
    with pytest.raises(LaunchError, match=f"^cannot reach http://127.0.0.1:1{words}") as caught:
        await _fetch()
    assert ("pw" in str(caught.value), hub.num_sent_bytes) == (False, 0)


async def test_without_a_network_what_another_program_has_downloaded_is_used(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")  # nothing listens there
    with pytest.raises(LaunchError, match=r"cannot reach http://127.0.0.1:1: .*[Cc]onnect"):
        await _fetch()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelError, match=r"owner/Model-0.5B cannot be downloaded, since HF_HUB_OFFLINE forbids"):
        await _fetch()
    monkeypatch.setenv("HF_ENDPOINT", "")  # as unset
    with pytest.raises(ModelError, match=r"forbids to ask https://huggingface.co$"):
        await _fetch()
    cached = tmp_path / "cache/hub/models--owner--Model-0.5B"
    folder = cached / "snapshots" / ("a" * 40)
    folder.mkdir(parents=True)
    (cached / "refs").mkdir()
    (cached / "refs/main").write_text("a" * 40)
    for name, data in _FILES.items():
        (folder / name).write_bytes(data)
    await _fetch()
    assert ensure_model_folder(_NAME) == folder
    assert hub.requests == []
