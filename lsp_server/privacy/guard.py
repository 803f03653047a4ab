"""The gate that all text passes before it is sent: not of excluded documents, and without secrets.

Only `midtoken.connection` has a client of the completion server, as an import contract says, and it sends nothing but
what is `Cleared`.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar

from lsp_server.context import Context
from lsp_server.errors import ExcludedError, InSecretError
from lsp_server.privacy.exclusion import Policy
from lsp_server.privacy.redaction import Excerpt, Redactor

_VALID_S = 1.0  # an edit of an ignore file counts after this time
_UNKNOWN = "whether a rule excludes it is not known yet"


_Content = TypeVar("_Content")
_Built = TypeVar("_Built")


class _Seal:
    """What no other module has, so that only `Guard` clears text."""


@dataclass(frozen=True, slots=True)
class Cleared(Generic[_Content]):
    """What may be sent. `Guard` makes it of text; what is built of that alone may be sent, too."""

    value: _Content
    _seal: _Seal

    def map(self, build: Callable[[_Content], _Built]) -> "Cleared[_Built]":
        """Returns what `build` makes of the value."""
        return Cleared(build(self.value), self._seal)

    def split(self, divide: Callable[[_Content], Iterable[_Built]]) -> "Iterator[Cleared[_Built]]":
        """Yields the parts that `divide` makes of the value."""
        return (Cleared(part, self._seal) for part in divide(self.value))


@dataclass(frozen=True, slots=True)
class _Answer:
    exclusion: str | None
    at_s: float


class Guard:
    """Applies the settings `exclude` and `redactSecrets`.

    The policy looks at files and asks Git, which may take long, so it runs in a thread of its own. What it said that a
    document may be sent is valid for a second, and is asked again after half of it. A document that it excluded stays
    excluded until it says otherwise. While nothing is known or valid, nothing may be sent.
    """

    def __init__(self, policy: Policy, now_s: Callable[[], float] = time.monotonic, wait_s: float = 0.5) -> None:
        """`wait_s`: how long to wait for rules that are not known."""
        self._policy = policy
        self._now_s = now_s
        self._wait_s = wait_s
        self._rules: object = ()  # the settings that answers follow
        self._answers: dict[str, _Answer] = {}  # by URI
        self._wanted: dict[str, None] = {}
        self._asking: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, "midtoken-rules")
        self._redacts = True
        self._redactor: Future[Redactor] | None = None

    def configure(self, exclude: Sequence[str], folder_uris: Sequence[str], redacts_secrets: bool) -> None:
        """Sets the two settings and the URIs of the workspace's folders."""
        self._redacts = redacts_secrets
        rules = (tuple(exclude), tuple(folder_uris))
        if rules != self._rules:
            self._rules = rules
            self._answers.clear()
            self._thread.submit(self._policy.configure, *rules)

    def prepare(self) -> None:
        """Begins to load the rules for secrets in a thread. That takes a quarter of a second."""
        if self._redacts and self._redactor is None:
            executor = ThreadPoolExecutor(1, "midtoken-secrets")
            self._redactor = executor.submit(Redactor)
            executor.shutdown(wait=False)

    async def ask(self, uris: Iterable[str]) -> None:
        """Has the policy asked about documents, and waits a moment for those of which nothing valid is known."""
        uris = list(uris)
        self._wanted |= {uri: None for uri in uris if not self._is_valid(uri, _VALID_S / 2)}
        if self._wanted and self._asking is None:
            self._asking = asyncio.create_task(self._ask_policy())
        if self._asking is not None and not all(map(self.is_known, uris)):
            await asyncio.wait({self._asking}, timeout=self._wait_s)

    def is_known(self, uri: str) -> bool:
        """False while nothing valid is known about a document."""
        answer = self._answers.get(uri)
        return answer is not None and (answer.exclusion is not None or self._is_valid(uri, _VALID_S))

    def find_exclusion(self, uri: str) -> str | None:
        """Returns why nothing of a document may be sent; None if it may. See `Policy.find_exclusion`."""
        return self._answers[uri].exclusion if self.is_known(uri) else _UNKNOWN

    def forget(self, uri: str) -> None:
        """A document was closed."""
        self._answers.pop(uri, None)

    def close(self) -> None:
        """Ends what the policy has started."""
        self._policy.close()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def clear(self, uri: str | None, text: str) -> Cleared[str]:
        """Returns whole lines of a document without secrets. See `Redactor.redact`. Raises ExcludedError.

        `uri`: None for text that is of no document.
        """
        self._refuse_excluded(uri)
        return Cleared(self._find_redactor().redact(text) if self._redacts else text, _Seal())

    def clear_excerpt(self, uri: str | None, excerpt: Excerpt) -> Cleared[Context]:
        """Returns the context without secrets. Raises ExcludedError; InSecretError if the cursor is in one."""
        self._refuse_excluded(uri)
        context = excerpt.redact(self._find_redactor()) if self._redacts else excerpt.context
        if context is None:
            raise InSecretError
        return Cleared(context, _Seal())

    def _refuse_excluded(self, uri: str | None) -> None:
        exclusion = None if uri is None else self.find_exclusion(uri)
        if exclusion is not None:
            raise ExcludedError(exclusion)

    def _is_valid(self, uri: str, max_age_s: float) -> bool:
        answer = self._answers.get(uri)
        return answer is not None and self._now_s() - answer.at_s < max_age_s

    async def _ask_policy(self) -> None:
        """Asks until nothing is wanted. An answer that follows other settings than the present ones is dropped."""
        try:
            while self._wanted:
                uris, rules = list(self._wanted), self._rules
                self._wanted.clear()
                asked = asyncio.get_running_loop().run_in_executor(self._thread, self._policy.find_exclusions, uris)
                found = await asked
                if rules is self._rules:
                    self._answers |= {uri: _Answer(exclusion, self._now_s()) for uri, exclusion in found.items()}
                else:
                    self._wanted |= dict.fromkeys(uris)
        finally:
            self._asking = None

    def _find_redactor(self) -> Redactor:
        self.prepare()
        assert self._redactor is not None, "prepared above"
        return self._redactor.result()
