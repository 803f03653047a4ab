"""transformers' `generate`, greedy, in float32, with and without its token healing.

    python -m benchmarks.baselines.contestants.transformers_generate MODEL_DIR --threads N [--healing]

A dynamic cache is kept between requests and cropped to the longest common beginning of the tokens. A streamer looks a
token's bytes up in a table and ends the generation at a line break. Only the end of a text is tokenized again.

Tried and slower: bfloat16, and `prompt_lookup_num_tokens`. A static cache cannot be cropped, and is compiled by itself
on accelerators only; `torch.compile` of the model had not compiled it after three minutes.

Token healing takes the last token back, adds 10 to the logits of the tokens that begin with its text, and generates
one token with a call to `generate` of its own. Some of it is improved here:
- Its trie of the vocabulary is built once; `generate` builds it anew for each request.
- The call in between uses the same cache; by itself it reads the whole text again.
- The tokenizer translates a blank to the character that stands for it in byte-level vocabularies. Otherwise healing
  does nothing if the last token begins with a blank (huggingface/transformers issue 36210).
- A text that ends with a blank is completed without healing, because healing strips it.
"""

from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache, GenerationConfig, StoppingCriteriaList
from transformers.convert_slow_tokenizer import bytes_to_unicode
from transformers.generation import utils as generation_utils
from transformers.generation.stopping_criteria import StoppingCriteria
from transformers.generation.streamers import BaseStreamer

from benchmarks.baselines.contestants.line_protocol import (
    Complete,
    KeptTokens,
    Line,
    Request,
    count_common,
    parse_arguments,
    serve,
)


def main() -> None:
    options = parse_arguments(__doc__, "--healing")
    torch.set_num_threads(options.threads)
    torch.set_num_interop_threads(1)
    serve(lambda: _load(str(options.model), options.healing))


def _load(model_dir: str, heals: bool) -> Complete:
    generator = _Generator(model_dir, heals)
    generator.complete(Request("import this\nimport th", max_tokens=4), Line())  # the first pass is slow
    return generator.complete


class _Sender(BaseStreamer, StoppingCriteria):  # type: ignore[misc]  # transformers is not followed by mypy
    """Sends the bytes of each token, and stops when the line is complete."""

    def __init__(self, token_bytes: list[bytes], prompt_ids: list[int], line: Line) -> None:
        self._token_bytes = token_bytes
        self._prompt_ids: list[int] | None = prompt_ids  # None after `generate` has sent the prompt
        self._line = line
        self._is_complete = False

    def put(self, value: Any) -> None:
        """Takes the prompt, whose last token healing may have replaced, then each token; Any: a tensor."""
        ids: list[int] = value.flatten().tolist()
        if self._prompt_ids is None:
            self._is_complete = self._line.send_bytes(self._token_bytes[ids[0]])
        elif ids != self._prompt_ids:
            num_typed = len(self._token_bytes[self._prompt_ids[-1]])
            self._is_complete = self._line.send_bytes(self._token_bytes[ids[-1]][num_typed:])
        self._prompt_ids = None

    def end(self) -> None:
        """Nothing is held back."""

    def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:  # noqa: ARG002  # tensors; transformers' names
        return torch.tensor([self._is_complete])


class _Generator:
    """The model, and the cache of the last text."""

    def __init__(self, model_dir: str, heals: bool) -> None:
        self._tokenizer = AutoTokenizer.from_pretrained(model_dir)
        self._model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32).eval()
        backend = self._tokenizer.backend_tokenizer
        self._tokens = KeptTokens(lambda text: list(backend.encode(text).ids))
        self._token_bytes = _find_token_bytes(self._tokenizer)
        self._cache = DynamicCache(config=self._model.config)
        self._cached_ids: list[int] = []
        self._heals = heals
        if heals:
            self._improve_healing()

    @torch.inference_mode()
    def complete(self, request: Request, line: Line) -> None:
        ids = self._tokens.encode(request.text)
        self._crop(min(count_common(ids, self._cached_ids), len(ids) - 1))
        sender = _Sender(self._token_bytes, ids, line)
        config = GenerationConfig(
            max_new_tokens=request.max_tokens, do_sample=False, eos_token_id=self._model.config.eos_token_id,
            pad_token_id=self._model.config.pad_token_id,
            token_healing=self._heals and not request.text[-1].isspace(),
        )  # fmt: skip
        generated = self._model.generate(
            torch.tensor([ids]), generation_config=config, past_key_values=self._cache, streamer=sender,
            stopping_criteria=StoppingCriteriaList([sender]), tokenizer=self._tokenizer,
        )  # fmt: skip
        self._cached_ids = generated[0, : self._cache.get_seq_length()].tolist()

    def _crop(self, num_tokens: int) -> None:
        num_extra = self._cache.get_seq_length() - num_tokens
        if num_extra > 0:
            self._cache.crop(-num_extra)

    def _improve_healing(self) -> None:
        """Changes what the docstring of this module lists. The methods are replaced, since no option reaches them."""
        trie = generation_utils.ExtensionsTrie(self._tokenizer.get_vocab())
        generation_utils.ExtensionsTrie = lambda _vocabulary: trie
        self._tokenizer.bos_token = self._tokenizer.eos_token  # healing fails without one; it occurs in no text
        to_ids, generate = self._tokenizer.convert_tokens_to_ids, self._model.generate
        self._tokenizer.convert_tokens_to_ids = lambda token: to_ids("Ġ" if token == " " else token)

        def generate_cached(ids: Any, **options: Any) -> Any:
            """Gives the cache to the call inside of healing, which names none."""
            if "past_key_values" not in options:
                self._crop(ids.shape[1] - 1)
                options["past_key_values"] = self._cache
            return generate(ids, **options)

        self._model.generate = generate_cached


def _find_token_bytes(tokenizer: Any) -> list[bytes]:
    """The bytes of each token; none for control tokens. Any: transformers' tokenizer."""
    to_byte = {char: byte for byte, char in bytes_to_unicode().items()}
    tokens = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    special = set(tokenizer.all_special_tokens)
    return [b"" if token in special else bytes(to_byte[char] for char in token) for token in tokens]


if __name__ == "__main__":
    main()
