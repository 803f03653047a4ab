"""Exact healing in front of a real llama.cpp server, which has the weights of the bundled model."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.baselines.servers import LLAMA_SERVER, run_llama_server
from benchmarks.corpora.cuts import draw_cuts
from benchmarks.remote import compare_remote
from inference.config import EngineConfig
from inference.engine.local_executor import build_engine
from inference.model.loader import load_model
from inference.protocol.completion import CompletionRequest, Extent, Priority, RelatedFile
from inference.remote.executor import load_remote_engine
from midtoken.installed import find_bundled_model
from models.training.corpus import iter_held_out
from tests.support.front_clients import EDITORS, ask_as_editors
from tests.support.lsp_editor import Script, StartEditor, build_capabilities, wait_for
from tests.support.servers import end_servers
from tests.support.sinks import CollectingSink, complete

_NOD = "class Node:\n    pass\n\n\ndef make():\n    return Nod"

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not LLAMA_SERVER.exists(), reason="make build/llama-server fetches it"),
]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a server with two slots."""
    with run_llama_server(find_bundled_model(), tmp_path_factory.mktemp("gguf")) as url:
        yield url


def test_every_text_is_that_of_our_own_engine_with_the_same_weights(url: str) -> None:
    cuts = draw_cuts(iter_held_out(), 20, 20, seed=0)
    assert compare_remote(url, find_bundled_model(), cuts).wrong == []


@pytest.mark.parametrize("options", [("-np", "2"), ("-np", "-1", "--cache-ram", "8192")], ids=" ".join)
def test_documents_in_turn_stay_cached_unless_the_server_clears_a_slot_for_another_which_is_said(
    options: tuple[str, ...], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The second options are the server's defaults."""
    texts = {name: "".join(f"{name}_{number} = {number}\n" for number in range(50)) for name in ("one", "two")}
    with run_llama_server(find_bundled_model(), tmp_path, *options) as url:
        config = EngineConfig(find_bundled_model(), engine_url=url)
        with closing(load_remote_engine(config)) as engine:
            for name in (*texts, *texts):
                stats = complete(engine, CompletionRequest(texts[name] + name, max_tokens=1, document=name)).stats
    [*warnings] = [record.getMessage() for record in caplog.records if "clears a slot" in record.getMessage()]
    assert len(warnings) == ("8192" in options)
    assert (stats.num_read_tokens > 200) == ("8192" in options)


def test_texts_in_characters_of_several_tokens_are_those_of_our_own_engine(url: str) -> None:
    config = EngineConfig(find_bundled_model(), dtype="float32")
    texts = ("# 中文注释：计", "s = '你好，世界'\nt = '你好，", "# emoji: 😀😃😄😁😀😃😄😁😀😃")
    with (
        closing(build_engine(config, load_model(config))) as own,
        closing(load_remote_engine(replace(config, engine_url=url))) as remote,
    ):
        for text in texts:
            request = CompletionRequest(text, max_tokens=16, extent=Extent.UNLIMITED)
            ours, theirs = (complete(engine, request).text for engine in (own, remote))
            assert ours
            assert ours == theirs


def test_probabilities_are_those_of_our_own_engine_with_the_same_weights(url: str) -> None:
    """Those of the first choices are estimates, of the later tokens exact."""
    config = EngineConfig(find_bundled_model(), dtype="float32")
    cuts, errors = draw_cuts(iter_held_out(), 15, 15, seed=0), list[list[float]]()
    with (
        closing(build_engine(config, load_model(config))) as own,
        closing(load_remote_engine(replace(config, engine_url=url))) as remote,
    ):
        for cut in cuts:
            request = CompletionRequest(cut.find_context(400), max_tokens=8, extent=Extent.UNLIMITED)
            sinks = [complete(engine, request) for engine in (own, remote)]
            ours, theirs = map(_find_log_probs, sinks)
            differences = [theirs[end] - ours[end] for end in sorted(ours.keys() & theirs.keys())]
            is_same = sinks[0].text == sinks[1].text  # not after a tie
            errors.append([abs(each - differences[0] * (number > 0)) for number, each in enumerate(differences)])
            if not is_same:
                del errors[-1][1:]
    assert sum(len(each) > 1 for each in errors) > len(errors) / 2
    assert sum(each[0] for each in errors) / len(errors) < 0.05
    assert max(error for each in errors for error in each[1:]) < 0.05


def _find_log_probs(sink: CollectingSink) -> dict[int, float]:
    """By the ends of tokens in the text, wherever that was cut into chunks."""
    start, found = 0, dict[int, float]()
    for chunk in sink.chunks:
        found |= {start + end: log_prob for end, log_prob in zip(chunk.text_ends, chunk.log_probs, strict=True)}
        start += len(chunk.text)
    return found


def test_what_is_told_of_other_files_changes_the_text_as_in_our_own_engine_and_is_read_once(url: str) -> None:
    stack = "class Stack:\n    def push_all_items(self, items):\n        self.items += items\n"
    request = CompletionRequest("stack = Stack()\nstack.pu", max_tokens=8, related=(RelatedFile("stack.py", stack),))
    config = EngineConfig(find_bundled_model(), dtype="float32")
    with (
        closing(build_engine(config, load_model(config))) as own,
        closing(load_remote_engine(replace(config, engine_url=url))) as remote,
    ):
        ahead = replace(request, prefix="", priority=Priority.PREFETCH)
        untold, ours = complete(own, replace(request, related=())), complete(own, request)
        _, theirs = complete(remote, ahead), complete(remote, request)
    assert untold.text != ours.text == theirs.text
    assert theirs.stats.num_related_tokens == ours.stats.num_related_tokens > 15
    assert theirs.stats.num_read_tokens <= theirs.stats.num_context_tokens - theirs.stats.num_related_tokens


async def test_an_editor_gets_ghost_text_from_the_server(url: str, own_lsp: Script, start_editor: StartEditor) -> None:
    script = replace(own_lsp, command=(*own_lsp.command, f"--engine={url}"))
    editor = await start_editor(script, build_capabilities(shows_progress=True))
    editor.open(_NOD)
    early = await editor.ask(5, 14)  # None if the server is not ready yet
    assert early is None or [item.insert_text for item in early.items] == ["Node"]
    await wait_for(lambda: any(report[:2] == (None, "ready") for report in editor.reports), 60)
    assert (await editor.ghost(5, 14)).insert_text == "Node"


@pytest.mark.timeout(400)  # llama-server by itself writes each text to its end
async def test_what_editors_send_is_completed_in_front_of_the_server_and_not_by_itself(
    url: str, tmp_path: Path
) -> None:
    assert await ask_as_editors(url, tmp_path) == {"front_clients": EDITORS, "front_clients_plainly": []}


def test_explain_shows_what_the_server_can_say_and_names_what_it_cannot(url: str, tmp_path: Path) -> None:
    (tmp_path / "file.py").write_text(_NOD)
    command = ["explain", f"--engine={url}", f"--state-dir={tmp_path / 'state'}", f"{tmp_path / 'file.py'}:6"]
    run = subprocess.run(_start(*command), capture_output=True, text=True, timeout=100, check=False)
    end_servers(tmp_path / "state")
    assert (run.returncode, run.stderr) == (0, "")
    assert "\nchosen       ·Node\n" in run.stdout
    assert "\n  exact      ‘e’\n  greedy     not here: the healing greedy masks each token" in run.stdout
    assert "\n  none       ‘" in run.stdout


def test_text_for_another_machine_is_not_sent_unencrypted(tmp_path: Path) -> None:
    (tmp_path / "file.py").write_text(_NOD)
    command = ["complete", "--engine=http://192.0.2.1:8080", f"{tmp_path / 'file.py'}:6:15"]
    run = subprocess.run(_start(*command), capture_output=True, text=True, timeout=60, check=False)
    assert (run.returncode, "unencrypted: use https" in run.stderr) == (1, True)


def _start(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "midtoken", *arguments]
