"""How much text is sent: what fits into the context of the model."""

from dataclasses import dataclass

DEFAULT_CONTEXT_TOKENS = 1024  # of a server that does not say it

# Code has about 3.5 bytes a token, and the server cuts what does not fit. The prefix is cut in steps, and after a step
# it has half of its bytes, which still fill the context.
_PREFIX_BYTES, _SUFFIX_BYTES, _RELATED_BYTES = 8, 2, 7 / 8  # for each token of the context


@dataclass(frozen=True, slots=True)
class Sizes:
    """The most bytes of each part of a request."""

    prefix_bytes: int
    suffix_bytes: int
    related_bytes: int  # of other files


def find_sizes(context_tokens: int = DEFAULT_CONTEXT_TOKENS) -> Sizes:
    """The sizes for a context: of its tokens, a quarter is for the suffix, and a quarter for other files."""
    return Sizes(_PREFIX_BYTES * context_tokens, _SUFFIX_BYTES * context_tokens, int(_RELATED_BYTES * context_tokens))
