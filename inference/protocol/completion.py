"""One completion request and the chunks that answer it, as dataclasses.

`inference.protocol.arrays` converts them to named arrays and back. This module does not import NumPy: the
language server starts without it.
"""

from dataclasses import dataclass, field, fields
from enum import StrEnum

from inference.errors import InvalidRequestError, check_ranges, refuse

MAX_TEXT_BYTES = 2 * 1024 * 1024  # more than any window; each byte is looked at for secrets
MAX_NAME_BYTES = 1024
MAX_STOP_STRINGS = 16
MAX_RELATED_FILES = 256
MAX_NEW_TOKENS = 4096
MAX_CANDIDATES = 16

_RANGES = {
    "max_tokens": (1, MAX_NEW_TOKENS),
    "num_candidates": (1, MAX_CANDIDATES),
    "temperature": (0.0, 10.0),
    "seed": (0, 2**63 - 1),
    "deadline_ms": (1, 3_600_000),
    "min_probability": (0.0, 1.0),
}


class Healing(StrEnum):
    """How the model is made to continue exactly the text before the cursor."""

    EXACT = "exact"  # the covering tree: exact, one forward pass
    GREEDY = "greedy"  # from the heal point on, one mask for each step
    SINGLE = "single"  # one token back; the next token must extend it
    NONE = "none"  # no healing: the canonical tokens of the text


class Extent(StrEnum):
    """How far a completion may go."""

    SINGLE_LINE = "single_line"  # to the end of the line
    BLOCK = "block"  # to the end of the indented block
    UNLIMITED = "unlimited"  # until the model ends it, or max_tokens
    AUTO = "auto"  # a block if the cursor opens one, otherwise a line


class Chunks(StrEnum):
    """When text is sent. Text that a later token may still cut waits in both cases."""

    TOKENS = "tokens"  # after each step
    # The first line once it is complete, or the text once it is less likely than `min_probability`, and the rest at the
    # end. Such a text goes on until it is half as likely: the client shows more of it as the user types.
    LINES = "lines"


class Priority(StrEnum):
    """Who waits for the answer."""

    INTERACTIVE = "interactive"  # a person
    PREFETCH = "prefetch"  # nobody: the context is cached for a later request, and nothing is generated
    PROBE = "probe"  # whoever asks whether the server completes; with one token, it is in no metric


class FinishReason(StrEnum):
    """Why a candidate ended."""

    END = "end"  # the model chose its end token
    EXTENT = "extent"  # the requested line or block is complete
    SUFFIX = "suffix"  # the text after the cursor was reached; what repeated it is not part of the text
    STOP = "stop"  # a stop string was generated; it is not part of the text
    LOOP = "loop"  # the text began to repeat itself; the repetition is not part of it
    LENGTH = "length"  # max_tokens were generated
    UNLIKELY = "unlikely"  # the text became less likely than `min_probability`
    DEADLINE = "deadline"
    SUPERSEDED = "superseded"  # a newer request for the same document came
    CANCELLED = "cancelled"
    PREFILLED = "prefilled"  # of a prefetch, which has no text


@dataclass(frozen=True, slots=True)
class RelatedFile:
    """What the prompt has of another file."""

    path: str  # relative to the workspace, with slashes; empty: unknown
    text: str


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """A request to complete the text between `prefix` and `suffix`."""

    prefix: str
    suffix: str = ""
    max_tokens: int = 64
    healing: Healing = Healing.EXACT
    stop: tuple[str, ...] = ()
    extent: Extent = Extent.AUTO
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    num_candidates: int = 1
    deadline_ms: int | None = None
    explain: bool = False
    chunks: Chunks = Chunks.TOKENS
    tenant: str = ""  # whose request it is; tenants never share the prefix cache
    document: str = ""  # a newer request of the tenant for it supersedes this one; empty: none does
    priority: Priority = Priority.INTERACTIVE
    # The text ends after the first token that makes it less likely than this, given the text before the cursor; with
    # `Chunks.LINES`, than half of this.
    min_probability: float = 0.0
    # What stands before the file. The most important comes first: of what does not fit, the last are left out.
    related: tuple[RelatedFile, ...] = ()
    path: str = ""  # of the file itself, as in `related`
    # Where prefilling all of the context would take long, the text continues the last lines only, and the rest of the
    # context is cached afterwards.
    near_first: bool = False

    def __post_init__(self) -> None:
        """Raises InvalidRequestError if a value is out of range."""
        check_ranges(self, _RANGES, InvalidRequestError)
        refuse(
            InvalidRequestError,
            {
                f"top_p must be above 0 and at most 1, not {self.top_p}": not 0.0 < self.top_p <= 1.0,
                f"stop takes up to {MAX_STOP_STRINGS} strings, none of them empty": (
                    len(self.stop) > MAX_STOP_STRINGS or not all(self.stop)
                ),
                f"related takes up to {MAX_RELATED_FILES} files, not {len(self.related)}": (
                    len(self.related) > MAX_RELATED_FILES
                ),
            },
        )
        for name, text, max_bytes in [
            *(("prefix", self.prefix, MAX_TEXT_BYTES), ("suffix", self.suffix, MAX_TEXT_BYTES)),
            *(("stop", each, MAX_TEXT_BYTES) for each in self.stop),
            ("related", "".join(each.text for each in self.related), MAX_TEXT_BYTES),
            *((name, getattr(self, name), MAX_NAME_BYTES) for name in ("tenant", "document", "path")),
            *(("a path in related", each.path, MAX_NAME_BYTES) for each in self.related),
        ]:
            _check_text(name, text, max_bytes)

    @property
    def is_probe(self) -> bool:
        """Whether only its success matters. A longer one counts: anybody can say that a request is a probe."""
        return self.priority is Priority.PROBE and self.max_tokens == 1

    @property
    def is_prefetch(self) -> bool:
        """True if nobody waits, and nothing is generated."""
        return self.priority is Priority.PREFETCH


@dataclass(slots=True)
class CompletionStats:
    """What a request has cost so far. Sent with its last chunk."""

    queue_ms: float = 0.0
    first_chunk_ms: float = 0.0
    first_token_ms: float = 0.0  # until the first choice, of which no text may be sent yet
    first_line_ms: float = 0.0  # until a whole line is sent, or the end of a shorter text
    total_ms: float = 0.0
    num_tokens: int = 0  # generated for all candidates, beyond what was typed
    num_forwards: int = 0
    num_context_tokens: int = 0
    num_related_tokens: int = 0  # those of them that are about other files, and the file's path
    num_tree_nodes: int = 0
    was_cut: bool = False  # whether the model has not seen all of the text before the cursor
    num_cached_tokens: int | None = None  # context tokens that were in the prefix cache; None: not known, or not yet
    num_first_tokens: int = 0  # tokens forwarded until the first token was chosen
    num_drafted: int = 0  # guessed tokens that were forwarded
    num_accepted: int = 0  # those of them that were right
    prompt_ms: float = 0.0  # healing, and the layout of the prompt
    model_ms: float = 0.0  # forward passes; those that other requests shared count in full
    choice_ms: float = 0.0

    @property
    def num_read_tokens(self) -> int:
        """The context tokens that were not in the prefix cache: all where that is not known."""
        return self.num_context_tokens - (self.num_cached_tokens or 0)


@dataclass(frozen=True, slots=True)
class ExplainedNode:
    """A node of the covering tree and its crossing. The strings are those of `show_bytes`."""

    parent: int | None  # index into Explanation.nodes; None for the root, the end of the kept tokens
    token: str  # the token at this node; empty for the root
    num_covered_bytes: int  # how many healed bytes the path to this node spells
    log_mass: float | None  # log P(path) + log of the mass of the tokens that may follow; None: no crossing here
    best_token: str | None  # the most likely of those tokens
    best_log_prob: float | None  # log P(path + best_token)


@dataclass(frozen=True, slots=True)
class ExplainedFile:
    """A file of `CompletionRequest.related`."""

    path: str
    num_tokens: int | None  # None: it was left out, because it does not fit


@dataclass(frozen=True, slots=True)
class Explanation:
    """What the prompt has, and what healing did at the cursor."""

    kept_tail: tuple[str, ...]  # the last kept tokens, as text
    healed_bytes: str
    nodes: tuple[ExplainedNode, ...]
    chosen_tokens: tuple[str, ...]  # the chosen path, and the token that goes beyond the healed bytes
    unhealed_tokens: tuple[str, ...]  # the canonical tokens of the healed bytes, without healing
    related: tuple[ExplainedFile, ...] = ()


@dataclass(frozen=True, slots=True)
class CompletionChunk:
    """A piece of one candidate. The concatenated texts of a candidate begin exactly at the cursor."""

    text: str
    candidate: int = 0
    text_ends: tuple[int, ...] = ()  # of the tokens, in characters of `text`; none if no probabilities are known
    log_probs: tuple[float, ...] = ()  # for each: log P(the candidate's text up to there | the text before the cursor)
    healed_bytes: int = 0  # how many bytes before the cursor were generated again
    finish_reason: FinishReason | None = None  # in the candidate's last chunk only
    stats: CompletionStats | None = None  # in the request's last chunk only
    explanation: Explanation | None = None  # in the request's last chunk, if it was requested

    @property
    def is_last(self) -> bool:
        """True for the last chunk of the request."""
        return self.stats is not None


@dataclass(frozen=True, slots=True)
class Description:
    """What a server reports of itself, as the answer to a heartbeat."""

    languages: tuple[str, ...] = ()  # those that the model knows, by their identifiers in LSP; empty: any
    runs_as: str = ""  # the type of numbers, the threads, and why
    problem: str = ""  # why no request would be answered now; empty: one would
    # The fields of requests that it knows.
    inputs: tuple[str, ...] = tuple(each.name for each in fields(CompletionRequest))
    repository_format: str = ""  # in which the model reads `related`; empty: as plain text, which it was not trained on
    context_tokens: int | None = None  # of a prompt, at most
    metrics: str = field(default="", compare=False)  # in Prometheus's text format
    # For how long the worker thread of the model has made no progress; 0 while it is idle.
    heartbeat_ms: float = field(default=0.0, compare=False)

    @property
    def reads_files(self) -> bool:
        """True if the model was trained on several files in one text."""
        return self.repository_format != ""


def show_bytes(data: bytes) -> str:
    """Returns the bytes as text. Those that are not UTF-8 are written as \\xNN."""
    return data.decode(errors="backslashreplace")


def replace_surrogates(text: str) -> str:
    """Returns `text` with each lone surrogate replaced by U+FFFD, so that it can be encoded as UTF-8."""
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _check_text(name: str, text: str, max_bytes: int) -> None:
    try:
        num_bytes = len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidRequestError(f"{name} holds a lone surrogate at character {error.start}") from None
    if num_bytes > max_bytes:
        raise InvalidRequestError(f"{name} has {num_bytes} bytes; at most {max_bytes} are taken")
