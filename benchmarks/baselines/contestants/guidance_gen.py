"""guidance with its llama.cpp backend, which heals the end of the text and keeps the context between requests.

    python -m benchmarks.baselines.contestants.guidance_gen MODEL.gguf --threads N

The grammar is `gen(stop="\\n", temperature=0)`. guidance takes back tokens at the end of the text and permits only
tokens that spell the same text again or go beyond it, one step after the other.

The engine of the model is called directly. `model + text + gen(...)` gives the same completions, but parses the text as
a grammar first, and streams through a thread and a queue: 37 ms in place of 8 to the first text, both warm. Monitoring
and the display in notebooks are off.
"""

from guidance import gen
from guidance.models import LlamaCpp
from guidance.models._engine._state import EngineState

from benchmarks.baselines.contestants.line_protocol import Complete, Line, Request, parse_arguments, serve

_NUM_CONTEXT_TOKENS = 2048


def main() -> None:
    options = parse_arguments(__doc__)
    serve(lambda: _load(str(options.model), options.threads))


def _load(gguf: str, num_threads: int) -> Complete:
    model = LlamaCpp(
        gguf, echo=False, enable_monitoring=False, n_ctx=_NUM_CONTEXT_TOKENS, n_batch=_NUM_CONTEXT_TOKENS,
        n_threads=num_threads, n_threads_batch=num_threads,
    )  # fmt: skip
    engine = model._interpreter.engine
    grammars: dict[int, str] = {}  # by their limit of tokens

    def complete(request: Request, line: Line) -> None:
        limit = request.max_tokens
        if limit not in grammars:
            grammars[limit] = gen(stop="\n", temperature=0.0, max_tokens=limit).ll_grammar()
        state = EngineState()
        state.prompt = request.text
        for response in engine(state, grammars[limit]):
            line.send_bytes(response.new_bytes)

    complete(Request("import this\nimport th", max_tokens=4), Line())  # the first pass is slow
    complete(Request("import this\nimport th"), Line())
    return complete


if __name__ == "__main__":
    main()
