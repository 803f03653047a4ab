"""What the policy says of documents at this moment. It is asked in threads, so that no key waits for a disk or Git."""

import asyncio
import math
import time
from asyncio import timeout
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from lsp_server.privacy.exclusion import Policy

_VALID_S = 1.0  # an edit of an ignore file counts after this time
_PROMPT_S = 0.1  # if the last answer took longer, nobody waits for one about a document that was known before
_UNKNOWN = "whether a rule excludes it is not known yet"


@dataclass(frozen=True, slots=True)
class _Ruling:
    exclusion: str | None
    at_s: float


@dataclass(slots=True, eq=False)
class _PolicyThread:
    """A thread that asks the policy. Documents that come while it is busy are asked about together."""

    executor: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "midtoken-rules"))
    wanted: dict[str, str] = field(default_factory=dict)  # the languages by URI
    asking: asyncio.Task[None] | None = None
    took_s: float = 0.0  # the last answer; infinite if somebody has waited for it in vain


class ExclusionCache:
    """Asks the policy, and keeps its answers.

    The policy looks at files and asks Git, which may take long, so it runs in threads: one for the document at hand,
    and one for the others. What it said that a document may be sent is valid for a second, and is asked again after
    half of it. A document that it excluded stays excluded until it says otherwise. While nothing is known or valid,
    nothing may be sent.
    """

    def __init__(self, policy: Policy, now_s: Callable[[], float] = time.monotonic, wait_s: float = 0.5) -> None:
        """`wait_s`: how long to wait for an answer about the document at hand."""
        self._policy = policy
        self._now_s = now_s
        self._wait_s = wait_s
        self._rules: tuple[Sequence[str], Sequence[str]] | None = None  # that answers follow; None: not known
        self._refusal: str | None = None  # why nothing may be sent
        self._answers: dict[str, _Ruling] = {}  # by URI
        self._answered = asyncio.Event()  # the next answer
        self._own, self._others = _PolicyThread(), _PolicyThread()

    def configure(self, exclude: Sequence[str], folder_uris: Sequence[str], refusal: str | None = None) -> None:
        """Sets what the policy is given, or why nothing may be sent whatever it says."""
        self._refusal = refusal
        rules = (exclude, tuple(folder_uris))
        if rules != self._rules:
            self._rules = rules
            self._answers.clear()
            self._begin(self._own)
            self._begin(self._others)

    async def refresh(self, languages: Mapping[str, str]) -> None:
        """Asks the policy about the document that the user edits. Waits for a short time if nothing valid is known.

        `languages`: those of the documents, by URI.
        """
        await self._ask(self._own, languages, self._wait_s)

    async def refresh_others(self, languages: Mapping[str, str]) -> None:
        """Does the same for other documents, but waits only a few hundredths of a second."""
        await self._ask(self._others, languages, self._wait_s / 20)

    async def wait_until_known(self, languages: Mapping[str, str]) -> None:
        """Asks the policy about documents, and waits for the answer."""
        await self._ask(self._others, languages, None)

    def is_known(self, uri: str) -> bool:
        """False while nothing valid is known about a document."""
        answer = self._answers.get(uri)
        return self._refusal is not None or (
            answer is not None and (answer.exclusion is not None or self._is_valid(uri, _VALID_S))
        )

    def is_excluded(self, uri: str) -> bool:
        """True if a document was excluded when the policy was asked last, or if nothing may be sent."""
        answer = self._answers.get(uri)
        return self._refusal is not None or (answer is not None and answer.exclusion is not None)

    def find_exclusion(self, uri: str) -> str | None:
        """Returns why nothing of a document may be sent; None if it may. See `Policy.find_exclusion`."""
        if self._refusal is not None:
            return self._refusal
        return self._answers[uri].exclusion if self.is_known(uri) else _UNKNOWN

    def forget(self, uri: str) -> None:
        """Forgets a document that was closed."""
        self._answers.pop(uri, None)

    def close(self) -> None:
        """Stops asking the policy."""
        for each in (self._own, self._others):
            each.executor.shutdown(wait=False, cancel_futures=True)

    def _is_valid(self, uri: str, max_age_s: float) -> bool:
        answer = self._answers.get(uri)
        return answer is not None and self._now_s() - answer.at_s < max_age_s

    async def _ask(self, thread: _PolicyThread, languages: Mapping[str, str], wait_s: float | None) -> None:
        thread.wanted |= {uri: name for uri, name in languages.items() if not self._is_valid(uri, _VALID_S / 2)}
        self._begin(thread)
        is_new = not languages.keys() <= self._answers.keys()
        try:
            if wait_s is None or thread.took_s <= (wait_s if is_new else _PROMPT_S):
                async with timeout(wait_s):
                    await self._wait(languages)
        except TimeoutError:
            thread.took_s = math.inf

    async def _wait(self, uris: Iterable[str]) -> None:
        while not all(map(self.is_known, uris)):
            await self._answered.wait()

    def _begin(self, thread: _PolicyThread) -> None:
        if self._rules is not None and thread.wanted and thread.asking is None:
            thread.asking = asyncio.create_task(self._ask_policy(thread))

    async def _ask_policy(self, thread: _PolicyThread) -> None:
        """Asks until nothing is wanted. An answer that follows other rules than the present ones is dropped."""
        try:
            while thread.wanted and (rules := self._rules) is not None:
                wanted, thread.wanted, began_s = thread.wanted, {}, self._now_s()
                look = partial(self._policy.find_exclusions, wanted, *rules)
                found = await asyncio.get_running_loop().run_in_executor(thread.executor, look)
                thread.took_s = self._now_s() - began_s
                if rules is self._rules:
                    self._answers |= {uri: _Ruling(exclusion, self._now_s()) for uri, exclusion in found.items()}
                else:
                    thread.wanted |= wanted
                self._answered.set()
                self._answered = asyncio.Event()
        finally:
            thread.asking = None
