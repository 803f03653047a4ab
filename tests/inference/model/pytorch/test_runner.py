from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from inference.config import EngineConfig
from inference.engine.sequence_memory import SequenceMemory
from inference.errors import ModelError, OverloadedError
from inference.healing.covering import Crossing, Rule
from inference.healing.token_tree import TokenTree
from inference.model.language_model import Part, SampleRequest, SampleResult, Sampling
from inference.model.pytorch.loader import load_torch_runner
from inference.model.pytorch.pool import TorchSequenceCache
from inference.model.pytorch.runner import Runner, TorchModel
from inference.model.pytorch.sampler import build_sampler
from tests.inference.conftest import MakeModel
from tests.support.pools import count_free
from tests.support.sequences import count_idle_bytes
from tests.support.tiny_families import EXPERTS, KV, LATENT, LAYER_TYPES, build_config, build_model
from tests.support.toys import toy_tokenizer, write_model

_FAMILIES: dict[str, dict[str, object]] = {
    "llama": {},
    "qwen2": {},
    "mistral": {"sliding_window": 5},
    "qwen3": {"num_key_value_heads": 2, "head_dim": 16},
    "starcoder2": {"num_key_value_heads": 2, "sliding_window": 5},
    "gpt2": {},
    "gpt_neox": {},
    "gpt_bigcode": {},
    "gemma": {"num_key_value_heads": 1, "head_dim": 8},
    "phi": {},
    "granite": {"num_key_value_heads": 2},
    "cohere": {"num_key_value_heads": 2},
    "olmo2": {"num_key_value_heads": 2},
    "stablelm": {"num_key_value_heads": 2},  # does not pass the arguments of the model's call on
    "nemotron": {"num_key_value_heads": 2, "head_dim": 8},
    "gemma2": {**KV, "sliding_window": 5, "attn_logit_softcapping": 2.0},
    "gemma3_text": {**KV, **LAYER_TYPES, "sliding_window": 5},
    "gemma4_text": {**KV, **LAYER_TYPES, "sliding_window": 5, "global_head_dim": 16, "hidden_size_per_layer_input": 8},
    "diffllama": KV,
}
_EXPERT_FAMILIES: dict[str, dict[str, object]] = {  # in float32: experts have no code for float64
    "deepseek_v2": LATENT,
    "deepseek_v3": LATENT,
    "gpt_oss": {**KV, **EXPERTS, "sliding_window": 5},
    "afmoe": {**KV, **EXPERTS, "sliding_window": 5},
    "llama4_text": {**KV, **EXPERTS, "attention_chunk_size": 5, "pad_token_id": 0, "attn_temperature_tuning": False},
}


def _load(folder: Path, dtype: str = "float64") -> tuple[Runner, transformers.PreTrainedModel]:
    """Loads the runner and the same model for transformers, both in float64, so that only mistakes differ."""
    runner = load_torch_runner(EngineConfig(folder, dtype=dtype))
    plain = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager")
    return runner, plain.eval()


def _plain_logits(plain: transformers.PreTrainedModel, ids: Sequence[int]) -> torch.Tensor:
    with torch.inference_mode():
        logits: torch.Tensor = plain(input_ids=torch.tensor([list(ids)]), use_cache=False).logits[0, -1].float()
    return logits


def _random_tree(random: Random, vocab_size: int) -> TokenTree:
    chain = tuple(random.choices(range(vocab_size), k=random.choice([1, 1, 2, 9])))
    branches = random.choices(range(vocab_size), k=random.choice([0, 0, 1, 4, 7]))
    parents = [random.choice([None, *range(index)]) for index in range(len(branches))]
    return TokenTree(chain, tuple(branches), tuple(parents))


@pytest.mark.parametrize("family", [*_FAMILIES, *_EXPERT_FAMILIES])
def test_each_node_gets_the_logits_of_its_own_path(family: str, make_model: MakeModel) -> None:
    """Several sequences in one pass, over several steps. Each step keeps some path. transformers is the oracle."""
    dtype = "float64" if family in _FAMILIES else "float32"
    runner, plain = _load(make_model(family=family, **(_FAMILIES | _EXPERT_FAMILIES)[family]), dtype)
    random = Random(11)
    caches = [runner.new_cache() for _ in range(3)]
    kept: list[list[int]] = [[] for _ in caches]
    for _ in range(5):
        here = random.sample(range(3), k=random.randint(1, 3))
        trees = [_random_tree(random, runner.vocab_size) for _ in here]

        logits = runner.forward([Part(caches[index], tree) for index, tree in zip(here, trees, strict=True)])

        row = 0
        for index, tree in zip(here, trees, strict=True):
            for node in (None, *range(len(tree.branch_ids))):
                path = [tree.branch_ids[branch] for branch in tree.find_path(node)]
                expected = _plain_logits(plain, [*kept[index], *tree.chain_ids, *path])
                torch.testing.assert_close(logits[row], expected, rtol=1e-3, atol=1e-3)
                row += 1
            node = random.choice([None, *range(len(tree.branch_ids))])
            branches = caches[index].copy_branches(tree)
            caches[index].keep(tree)
            caches[index].append([branches[branch] for branch in tree.find_path(node)])
            kept[index] += [*tree.chain_ids, *(tree.branch_ids[branch] for branch in tree.find_path(node))]
        assert row == len(logits)


class _Reader:
    """Forward passes of one model, with logits in float64 as the model computes them."""

    def __init__(self) -> None:
        self._model = build_model(build_config("gemma3_text", _FAMILIES["gemma3_text"]), torch.float64)
        self._found: list[torch.Tensor] = []
        self._model.register_forward_hook(lambda _model, _inputs, output: self._found.append(output.logits[0]))
        self.runner = Runner(self._model, torch.device("cpu"))

    def forward(self, *parts: Part) -> torch.Tensor:
        self.runner.forward(parts)
        return self._found[-1]

    def read_plainly(self, *token_ids: int) -> torch.Tensor:
        return self.forward(Part(self.runner.new_cache(), TokenTree(token_ids)))[-1]

    def check(self, cache: TorchSequenceCache, *token_ids: int) -> None:
        """The cache has these tokens, and a further one gets the logits of a plain pass."""
        assert cache.num_tokens == len(token_ids)
        for token_id in (7, 8):
            logits = self.forward(Part(cache, TokenTree((token_id,))))[-1]
            torch.testing.assert_close(logits, self.read_plainly(*token_ids, token_id), rtol=0, atol=1e-9)


@pytest.fixture
def reader() -> _Reader:
    return _Reader()


def test_a_window_counts_from_the_positions_of_stored_branches(reader: _Reader) -> None:
    """Half of the layers see five tokens only."""
    cache, tree = reader.runner.new_cache(4), TokenTree((1, 2), (3, 4), (None, 0))
    reader.forward(Part(cache, tree))
    further = TokenTree((), (3, 4, 5, 6, 7, 8, 9), (None, 0, 1, 2, 3, 4, 5))
    part = Part(cache, further, tuple(cache.copy_branches(tree)))
    cache.keep(tree)

    logits = reader.forward(part)

    for row, end in zip(logits, range(5, 10), strict=True):
        torch.testing.assert_close(row, reader.read_plainly(*range(1, end + 1)), rtol=0, atol=1e-9)


@pytest.mark.parametrize(("dtype", "of_logits"), [("bfloat16", torch.bfloat16), ("float64", torch.float32)])
def test_logits_have_the_type_that_the_model_computes_in_but_at_most_float32(
    make_model: MakeModel, dtype: str, of_logits: torch.dtype
) -> None:
    runner = load_torch_runner(EngineConfig(make_model(), dtype=dtype))

    assert runner.forward([Part(runner.new_cache(), TokenTree((1,)))]).dtype == of_logits


class _AllRowsLlama(transformers.LlamaForCausalLM):  # type: ignore[misc]  # transformers has no types
    """A model that returns the logits of all rows, not only the requested ones."""

    def forward(self, *, logits_to_keep: torch.Tensor | None = None, **others: Any) -> Any:  # noqa: ARG002  # that is the case
        return super().forward(**others)


class _NoRowsLlama(transformers.LlamaForCausalLM):  # type: ignore[misc]  # transformers has no types
    """A model that cannot be asked for some rows only."""

    def forward(self, input_ids: torch.Tensor, position_ids: torch.Tensor, *, use_cache: bool) -> Any:
        return super().forward(input_ids, position_ids=position_ids, use_cache=use_cache)


@pytest.mark.parametrize("family", [_AllRowsLlama, _NoRowsLlama])
def test_rows_are_selected_for_a_model_that_returns_all(family: type) -> None:
    model = build_model(build_config("llama", KV))
    tree = TokenTree((1, 2, 3), (4, 5), (None, 0))
    expected = _forward_once(Runner(model, torch.device("cpu")), tree)
    model.__class__ = family

    torch.testing.assert_close(_forward_once(Runner(model, torch.device("cpu")), tree), expected)


def _forward_once(runner: Runner, tree: TokenTree) -> torch.Tensor:
    return runner.forward([Part(runner.new_cache(), tree)])


def test_a_text_whose_logits_are_no_numbers_is_an_error_and_the_next_text_is_not(tmp_path: Path) -> None:
    folder = write_model(tmp_path, toy_tokenizer("qwen"))
    weights = load_file(folder / "model.safetensors")
    weights["model.embed_tokens.weight"][300] = torch.nan  # as a float16 model that overflows after some texts
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    runner = load_torch_runner(EngineConfig(folder))

    with pytest.raises(ModelError, match="in float32, the model's logits are infinite or no numbers"):
        runner.forward([Part(runner.new_cache(), TokenTree((5, 300)))])
    assert runner.forward([Part(runner.new_cache(), TokenTree((5, 6)))]).isfinite().all()


_GREEDY = Sampling(temperature=0.0, top_p=1.0)


@pytest.fixture
def runner(make_model: MakeModel) -> Runner:
    return load_torch_runner(EngineConfig(make_model("qwen"), dtype="float64"))


@pytest.fixture
def model(runner: Runner) -> TorchModel:
    toy = toy_tokenizer("qwen")
    return TorchModel(runner, build_sampler(runner.device, runner.dtype, toy.vocabulary, toy.trie))


def _build_part(model: TorchModel, token_ids: tuple[int, ...], wants_logits: bool = True) -> Part:
    return Part(model.new_cache(), TokenTree(token_ids), wants_logits=wants_logits)


def _choose(model: TorchModel, part: Part, rows: list[Any]) -> SampleResult:
    return model.choose([SampleRequest(part.tree, (Crossing(None, b"", Rule.EXTEND),), rows, _GREEDY)])[0]


def _fill_memory(*_args: Any, **_named: Any) -> None:
    raise torch.OutOfMemoryError("CUDA out of memory")


def test_idle_sequences_make_room_for_a_new_one(
    model: TorchModel, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, room = SequenceMemory(model.new_cache, max_bytes=1 << 30), count_free(runner._pool)
    idle = [memory.take("tenant", (), room // 4) for _ in range(4)]
    for sequence in idle:
        memory.give_back(sequence)
    del idle, sequence
    monkeypatch.setattr(torch.Tensor, "new_empty", _fill_memory)  # the pool cannot grow

    memory.take("tenant", (), room)

    assert count_idle_bytes(memory) == 0
    with pytest.raises(OverloadedError, match="keys and values of"):
        memory.take("tenant", (), room)
