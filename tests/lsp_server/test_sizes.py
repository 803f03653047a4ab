"""How much text is sent to a model with a context of so many tokens."""

import random
import sysconfig
from pathlib import Path

import pytest

from inference.healing.heal_point import encode_text
from inference.healing.loaded_tokenizer import load_tokenizer
from lsp_server.settings import Settings
from lsp_server.sizes import Sizes, find_sizes
from tests.support.lsp_editor import wait_for
from tests.support.lsp_in_process import InProcess

_BEFORE_SUFFIX = 0.75  # of a context
_NUM_PLACES = 40


def test_1024_tokens_have_the_sizes_that_were_the_defaults() -> None:
    assert Settings().sizes == find_sizes(1024) == Sizes(8192, 2048, 896)


def test_the_old_names_go_before_the_context() -> None:
    assert Settings(context=4096, max_suffix_bytes=0).sizes == Sizes(32_768, 0, 3584)


@pytest.mark.parametrize("context_tokens", [512, 2048])
def test_what_is_left_after_the_prefix_was_cut_still_fills_the_context(context_tokens: int) -> None:
    rng, tokenizer = random.Random(1), load_tokenizer(Path("models/default"))
    num_chars = find_sizes(context_tokens).prefix_bytes // 2  # `cut_excerpt` moves a prefix of fewer
    texts = [path.read_text(encoding="utf-8") for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))]
    long = [text for text in texts if len(text) > 2 * num_chars]
    places = [(text, rng.randrange(num_chars, len(text))) for text in rng.choices(long, k=_NUM_PLACES)]
    counts = [len(encode_text(tokenizer.encoder, text[end - num_chars : end])) for text, end in places]
    assert sum(count >= _BEFORE_SUFFIX * context_tokens for count in counts) >= 0.9 * _NUM_PLACES


async def test_what_is_sent_fits_the_server_and_the_setting(both: InProcess) -> None:
    both.backend.context_tokens = 64
    await both.start_with("x = 1\n" * 1000)
    assert (await both.ask_and_finish(1000, 0, "b")).items  # before it was connected
    assert (await both.ask_and_finish(999, 5, "b")).items
    assert 256 <= len(both.backend.streams[-1].request.prefix) <= 512
    both.editor.settings = {"context": 32}
    both.editor.push_settings(None)
    await wait_for(lambda: both.contexts == [None, 32])
    both.editor.settings = {"context": "auto", "maxPrefixBytes": 300}
    both.editor.push_settings(None)
    await wait_for(lambda: both.contexts == [None, 32, None])
