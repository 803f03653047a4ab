"""llama.cpp through llama-cpp-python.

    python -m benchmarks.baselines.contestants.llama_cpp_python MODEL.gguf --threads N [--passes]

It completes as llama.vim's server does: the canonical tokens of the text, greedily, without token healing. One context
is kept between requests, and only what follows the longest common beginning of the tokens is read again
(`Llama.generate` does that). Only the end of a text is tokenized again, and a token's bytes are looked up in a table,
because llama-cpp-python's own `create_completion` detokenizes the whole completion for each token.

Keys and values are kept in float16 and flash attention is off, as by default. With one row at a time that was faster
than flash attention or float32; 1,000 tokens at once are read some 10 % faster with flash attention. Prompt lookup
(`LlamaPromptLookupDecoding`) was slower by a tenth.

With `--passes`, single passes are timed. Several rows are a chain, whose logits are all computed. A tree, which
sequence ids can express, takes more time.
"""

from llama_cpp import Llama

from benchmarks.baselines.contestants.line_protocol import (
    Complete,
    KeptTokens,
    Line,
    Passes,
    Request,
    parse_arguments,
    serve,
    serve_passes,
)

_NUM_CONTEXT_TOKENS = 2048


def main() -> None:
    options = parse_arguments(__doc__, "--passes")
    if options.passes:
        serve_passes(lambda: _LlamaPasses(_load(str(options.model), options.threads)))
    else:
        serve(lambda: _build_loop(_load(str(options.model), options.threads)))


def _load(gguf: str, num_threads: int) -> Llama:
    return Llama(
        gguf,
        n_ctx=_NUM_CONTEXT_TOKENS,
        n_batch=_NUM_CONTEXT_TOKENS,
        n_threads=num_threads,
        n_threads_batch=num_threads,
        verbose=False,
    )


def _build_loop(llama: Llama) -> Complete:
    tokens = KeptTokens(lambda text: llama.tokenize(text.encode(), add_bos=False, special=False))
    token_bytes = [llama.detokenize([token_id]) for token_id in range(llama.n_vocab())]

    def complete(request: Request, line: Line) -> None:
        generated = llama.generate(tokens.encode(request.text), temp=0.0)
        for _, token_id in zip(range(request.max_tokens), generated, strict=False):
            if token_id == llama.token_eos() or line.send_bytes(token_bytes[token_id]):
                return

    complete(Request("import this\n", max_tokens=4), Line())  # the first pass is slow
    return complete


class _LlamaPasses(Passes):
    def __init__(self, llama: Llama) -> None:
        self._llama = llama
        self._num_kept = 0

    def read(self, token_ids: list[int]) -> None:
        self.cut(0)
        self._decode(token_ids, wants_all=False)

    def cut(self, num_tokens: int) -> None:
        self._llama._ctx.kv_cache_seq_rm(0, num_tokens, -1)
        self._num_kept = num_tokens

    def forward(self, token_ids: list[int]) -> None:
        self._decode(token_ids, wants_all=True)
        self.cut(self._num_kept)

    def _decode(self, token_ids: list[int], wants_all: bool) -> None:
        self._llama._batch.set_batch(token_ids, self._num_kept, wants_all)
        self._llama._ctx.decode(self._llama._batch)
        self._llama._ctx.get_logits_ith(-1)  # waits until they are there


if __name__ == "__main__":
    main()
