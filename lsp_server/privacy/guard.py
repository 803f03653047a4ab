"""The gate that each request passes as it is sent: nothing of excluded documents, no secrets, and no names.

Only `midtoken.connection` has a client of the completion server, as an import contract says, and it sends nothing but
a `Cleared` request. `Guard.clear` is the last step: nothing can be added to what it returns.
"""

import asyncio
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Generic, TypeVar, final

from inference.platforms import timeout
from inference.protocol.completion import CompletionRequest
from lsp_server.errors import ExcludedError
from lsp_server.privacy.exclusion import Policy
from lsp_server.privacy.redaction import Redactor
from lsp_server.settings import Settings

if TYPE_CHECKING:  # it imports NumPy, and the language server does not
    from inference.protocol.characters import CharacterRequest

_VALID_S = 1.0  # an edit of an ignore file counts after this time
_PROMPT_S = 0.1  # if the last answer took longer, nobody waits for one about a document that was known before
_UNKNOWN = "whether a rule excludes it is not known yet"


_Request = TypeVar("_Request", CompletionRequest, "CharacterRequest")


class _GuardOnly:
    """An argument that no other module has, so that only `Guard.clear` can build a `Cleared` request."""


@final
class Cleared(Generic[_Request]):
    """A request that may be sent as it is. It is no dataclass: `dataclasses.replace` would change what was cleared."""

    __slots__ = ("_value",)

    def __init__(self, value: _Request, _key: _GuardOnly) -> None:
        self._value: _Request = value

    @property
    def value(self) -> _Request:
        """The request."""
        return self._value


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
        self._answers: dict[str, _Ruling] = {}  # by URI
        self._answered = asyncio.Event()  # the next answer
        self._own, self._others = _PolicyThread(), _PolicyThread()
        self.redactor = Redactor(is_strict=is_remote)  # for text of which requests are built; `clear` uses it last
        self._key = os.urandom(16)

    def configure(self, settings: Settings, folder_uris: Sequence[str], refusal: str | None = None) -> None:
        """Sets the settings and the URIs of the workspace's folders. Before that, nothing may be sent.

        `refusal`: why the settings say nothing that can be relied on, so that nothing may be sent.
        """
        self.redactor, self._refusal = replace(self.redactor, is_on=settings.redact_secrets), refusal
        rules = (settings.exclude, tuple(folder_uris))
        if rules != self._rules:
            self._rules = rules
            self._answers.clear()
            self._begin(self._own)
            self._begin(self._others)

    async def ask(self, languages: Mapping[str, str]) -> None:
        """Asks the policy about the document that the user edits. Waits for a short time if nothing valid is known.

        `languages`: those of the documents, by URI.
        """
        await self._ask(self._own, languages, self._wait_s)

    async def ask_about_others(self, languages: Mapping[str, str]) -> None:
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

    def clear(self, request: _Request, uris: Iterable[str] = ()) -> Cleared[_Request]:
        """Returns the request as it may be sent: without secrets, and with random names in place of its own.

        `uris`: of all documents whose text is in it. Raises ExcludedError; InSecretError if its cursor is in a secret.
        """
        for uri in uris:
            if (exclusion := self.find_exclusion(uri)) is not None:
                raise ExcludedError(exclusion, uri)
        return Cleared(self._clean(request), _GuardOnly())

    def _clean(self, request: _Request) -> _Request:
        if isinstance(request, CompletionRequest):
            prefix, suffix = self.redactor.redact_parts([request.prefix, request.suffix], cursor=1)
            tenant, document = map(self._hide, (request.tenant, request.document))
            stop = self.redactor.redact_stops(request.stop, request.prefix + request.suffix)
            return replace(request, prefix=prefix, suffix=suffix, stop=stop, tenant=tenant, document=document)
        parts = [os.fsdecode(request.context), os.fsdecode(request.text)]
        has_cursor = request.ask not in ("surprisal", "probability")
        context, text = map(os.fsencode, self.redactor.redact_parts(parts, cursor=2 if has_cursor else None))
        return replace(request, context=context, text=text)

    def _hide(self, name: str) -> str:
        """The same name becomes the same digest while this process runs, and nobody can find it by guessing."""
        return name and blake2b(name.encode(), key=self._key, digest_size=16).hexdigest()

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
