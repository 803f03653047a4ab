"""llama.cpp through llama-cpp-python.

    python -m benchmarks.baselines.contestants.llama_cpp_loop MODEL.gguf --threads N

It completes as llama.vim's server does: the canonical tokens of the text, greedily, without token healing. One context
is kept between requests, and only what follows the longest common beginning of the tokens is read again
(`Llama.generate` does that). Text is tokenized from the last line on, and a token's bytes are looked up in a table,
because llama-cpp-python's own `create_completion` detokenizes the whole completion for each token.

Keys and values are kept in float16 and flash attention is off, as by default. With one row at a time that was faster
than flash attention or float32; 1,000 tokens at once are read some 10 % faster with flash attention. Prompt lookup
(`LlamaPromptLookupDecoding`) was slower by a tenth.
"""

from llama_cpp import Llama

from benchmarks.baselines.contestants.line_protocol import Complete, KeptTokens, Line, Request, parse_arguments, serve

_NUM_CONTEXT_TOKENS = 2048


def main() -> None:
    options = parse_arguments(__doc__)
    serve(lambda: _load(str(options.model), options.threads))


def _load(gguf: str, num_threads: int) -> Complete:
    llama = Llama(
        gguf,
        n_ctx=_NUM_CONTEXT_TOKENS,
        n_batch=_NUM_CONTEXT_TOKENS,
        n_threads=num_threads,
        n_threads_batch=num_threads,
        verbose=False,
    )
    tokens = KeptTokens(lambda text: llama.tokenize(text.encode(), add_bos=False, special=False))
    token_bytes = [llama.detokenize([token_id]) for token_id in range(llama.n_vocab())]

    def complete(request: Request, line: Line) -> None:
        generated = llama.generate(tokens.encode(request.text), temp=0.0)
        for _, token_id in zip(range(request.max_tokens), generated, strict=False):
            if token_id == llama.token_eos() or line.send_bytes(token_bytes[token_id]):
                return

    complete(Request("import this\n", max_tokens=4), Line())  # the first pass is slow
    return complete


if __name__ == "__main__":
    main()
