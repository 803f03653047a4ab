"""The gate that all text passes before it is sent: not of excluded documents, and without secrets.

Only `midtoken.connection` has a client of the completion server, as an import contract says, and it sends nothing but
what is `Cleared`.
"""

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TypeVar

from inference.platforms import timeout
from lsp_server.context import Context
from lsp_server.errors import ExcludedError, InSecretError
from lsp_server.privacy.exclusion import Policy
from lsp_server.privacy.redaction import Excerpt, Redactor
from lsp_server.settings import Settings

_VALID_S = 1.0  # an edit of an ignore file counts after this time
_PROMPT_S = 0.1  # if the last answer took longer, nobody waits for one about a document that was known before
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


@dataclass(slots=True, eq=False)
class _Lane:
    """A thread in which the policy is asked, about all documents at once that were wanted meanwhile."""

    thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "midtoken-rules"))
    wanted: dict[str, str] = field(default_factory=dict)  # the languages by URI
    asking: asyncio.Task[None] | None = None
    took_s: float = 0.0  # the last answer; infinite if somebody has waited for it in vain


class Guard:
    """Applies the settings `exclude` and `redactSecrets`.

    The policy looks at files and asks Git, which may take long, so it runs in threads: one for the document at hand,
    and one for the others. What it said that a document may be sent is valid for a second, and is asked again after
    half of it. A document that it excluded stays excluded until it says otherwise. While nothing is known or valid,
    nothing may be sent.
    """

    def __init__(
        self,
        policy: Policy | None = None,
        now_s: Callable[[], float] = time.monotonic,
        wait_s: float = 0.5,
        is_remote: bool = False,
    ) -> None:
        """`policy`: None for text of no file. `wait_s`: how long to wait for an answer about the document at hand.

        `is_remote`: text may go to another machine.
        """
        self._policy = policy or Policy({})
        self._now_s = now_s
        self._wait_s = wait_s
        self._rules: tuple[Sequence[str], Sequence[str]] | None = None  # that answers follow; None: not known
        self._refusal: str | None = None  # why nothing may be sent
        self._answers: dict[str, _Answer] = {}  # by URI
        self._waiting: list[asyncio.Future[None]] = []  # for the next answer
        self._own, self._others = _Lane(), _Lane()
        self._redacts = True
        self._redactor = Redactor(is_strict=is_remote)

    def configure(self, settings: Settings, folder_uris: Sequence[str], refusal: str | None = None) -> None:
        """Sets the settings and the URIs of the workspace's folders. Before that, nothing may be sent.

        `refusal`: why the settings say nothing that can be relied on, so that nothing may be sent.
        """
        self._redacts, self._refusal = settings.redact_secrets, refusal
        rules = (settings.exclude, tuple(folder_uris))
        if rules != self._rules:
            self._rules = rules
            self._answers.clear()
            self._begin(self._own)
            self._begin(self._others)

    async def ask(self, languages: Mapping[str, str]) -> None:
        """Has the policy asked about the document at hand, and waits a moment if nothing valid is known about it.

        `languages`: those of the documents, by URI.
        """
        await self._ask(self._own, languages, self._wait_s)

    async def ask_about_others(self, languages: Mapping[str, str]) -> None:
        """Does the same for other documents, but waits only a few hundredths of a second."""
        await self._ask(self._others, languages, self._wait_s / 20)

    async def wait_until_known(self, languages: Mapping[str, str]) -> None:
        """Has the policy asked about documents, and waits until it has answered."""
        await self._ask(self._others, languages, None)

    def is_known(self, uri: str) -> bool:
        """False while nothing valid is known about a document."""
        answer = self._answers.get(uri)
        return self._refusal is not None or (
            answer is not None and (answer.exclusion is not None or self._is_valid(uri, _VALID_S))
        )

    def find_exclusion(self, uri: str) -> str | None:
        """Returns why nothing of a document may be sent; None if it may. See `Policy.find_exclusion`."""
        if self._refusal is not None:
            return self._refusal
        return self._answers[uri].exclusion if self.is_known(uri) else _UNKNOWN

    def forget(self, uri: str) -> None:
        """A document was closed."""
        self._answers.pop(uri, None)

    def close(self) -> None:
        """The policy is asked no more."""
        for lane in (self._own, self._others):
            lane.thread.shutdown(wait=False, cancel_futures=True)

    def clear(self, uri: str | None, text: str) -> Cleared[str]:
        """Returns whole lines of a document without secrets. See `Redactor.redact`. Raises ExcludedError.

        `uri`: None for text that is of no document.
        """
        self._refuse_excluded(uri)
        return Cleared(self._redactor.redact(text) if self._redacts else text, _Seal())

    def clear_excerpt(self, uri: str | None, excerpt: Excerpt) -> Cleared[Context]:
        """Returns the context without secrets. Raises ExcludedError; InSecretError if the cursor is in one."""
        self._refuse_excluded(uri)
        context = excerpt.redact(self._redactor) if self._redacts else excerpt.context
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

    async def _ask(self, lane: _Lane, languages: Mapping[str, str], wait_s: float | None) -> None:
        lane.wanted |= {uri: name for uri, name in languages.items() if not self._is_valid(uri, _VALID_S / 2)}
        self._begin(lane)
        is_new = not languages.keys() <= self._answers.keys()
        try:
            if wait_s is None or lane.took_s <= (wait_s if is_new else _PROMPT_S):
                async with timeout(wait_s):
                    await self._wait(languages)
        except TimeoutError:
            lane.took_s = math.inf

    async def _wait(self, uris: Iterable[str]) -> None:
        while not all(map(self.is_known, uris)):
            answer = asyncio.get_running_loop().create_future()
            self._waiting.append(answer)
            await answer

    def _begin(self, lane: _Lane) -> None:
        if self._rules is not None and lane.wanted and lane.asking is None:
            lane.asking = asyncio.create_task(self._ask_policy(lane))

    async def _ask_policy(self, lane: _Lane) -> None:
        """Asks until nothing is wanted. An answer that follows other rules than the present ones is dropped."""
        try:
            while lane.wanted and (rules := self._rules) is not None:
                wanted, lane.wanted, began_s = lane.wanted, {}, self._now_s()
                look = partial(self._policy.find_exclusions, wanted, *rules)
                found = await asyncio.get_running_loop().run_in_executor(lane.thread, look)
                lane.took_s = self._now_s() - began_s
                if rules is self._rules:
                    self._answers |= {uri: _Answer(exclusion, self._now_s()) for uri, exclusion in found.items()}
                else:
                    lane.wanted |= wanted
                self._tell_waiting()
        finally:
            lane.asking = None

    def _tell_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for answer in waiting:
            if not answer.done():
                answer.set_result(None)
