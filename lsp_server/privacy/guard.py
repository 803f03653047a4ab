"""The gate that each request passes as it is sent: nothing of excluded documents, no secrets, and no names.

Only `midtoken.connection` has a client of the completion server, as an import contract says, and it sends nothing but
a `Cleared` request. `Guard.clear` is the last step: nothing can be added to what it returns.
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Generic, TypeVar, final

from inference.protocol.completion import CompletionRequest, RelatedFile
from lsp_server.context import Context
from lsp_server.errors import ExcludedError
from lsp_server.privacy import secrets
from lsp_server.privacy.exclusion import Policy
from lsp_server.settings import Settings

if TYPE_CHECKING:  # it imports NumPy, and the language server does not
    from inference.protocol.characters import CharacterRequest

_Request = TypeVar("_Request", CompletionRequest, "CharacterRequest")

_VALID_S = 1.0  # an edit of an ignore file counts after this time
_UNKNOWN = "whether a rule excludes it is not known yet"


@dataclass(frozen=True, slots=True)
class _Answer:
    exclusion: str | None
    at_s: float


class Exclusions:
    """Asks the policy about documents, and keeps its answers.

    The policy looks at files and asks Git, which may take long, so it runs in threads: one for the document at hand,
    and one for the others. What it said that a document may be sent is valid for a second, and is asked again after
    half of it. A document that it excluded stays excluded until it says otherwise. While nothing is known or valid,
    nothing may be sent.
    """

    def __init__(self, policy: Policy, now_s: Callable[[], float] = time.monotonic) -> None:
        self._policy = policy
        self._now_s = now_s
        self._rules: tuple[Sequence[str], Sequence[str]] = (), ()  # that answers follow
        self._are_rules_known = asyncio.Event()
        self._refusal: str | None = None  # why nothing may be sent
        self._answers: dict[str, _Answer] = {}  # by URI
        self._looks: dict[tuple[bool, str], asyncio.Task[None]] = {}  # those under way
        self._threads = {is_own: ThreadPoolExecutor(1, "midtoken-rules") for is_own in (True, False)}

    def configure(self, exclude: Sequence[str], folder_uris: Sequence[str], refusal: str | None = None) -> None:
        """Sets what the policy is given, or why nothing may be sent whatever it says."""
        self._refusal = refusal
        rules = tuple(exclude), tuple(folder_uris)
        if rules != self._rules:
            self._rules = rules
            self._answers.clear()
        self._are_rules_known.set()

    async def ask(self, languages: Mapping[str, str], is_own: bool = False, wait_s: float | None = None) -> None:
        """Asks the policy about documents, and waits until the answer is known; None: however long that takes.

        `languages`: those of the documents, by URI. `is_own`: it is the document that the user edits.
        """
        old = {uri: name for uri, name in languages.items() if not self._is_valid(uri, _VALID_S / 2)}
        old = {uri: name for uri, name in old.items() if (is_own, uri) not in self._looks}
        if old:
            self._looks |= dict.fromkeys([(is_own, uri) for uri in old], asyncio.create_task(self._look(old, is_own)))
        looks = {self._looks[is_own, uri] for uri in languages if not self.is_known(uri)}
        if looks:
            await asyncio.wait(looks, timeout=wait_s)

    def is_known(self, uri: str) -> bool:
        """False while nothing valid is known about a document."""
        return self.is_excluded(uri) or self._is_valid(uri, _VALID_S)

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
        for each in self._threads.values():
            each.shutdown(wait=False, cancel_futures=True)

    def _is_valid(self, uri: str, max_age_s: float) -> bool:
        answer = self._answers.get(uri)
        return answer is not None and self._now_s() - answer.at_s < max_age_s

    async def _look(self, languages: Mapping[str, str], is_own: bool) -> None:
        """Asks until the answer follows the rules of this moment."""
        try:
            await self._are_rules_known.wait()
            rules = None
            while rules is not self._rules:
                rules = self._rules
                look = self._policy.find_exclusions
                found = await asyncio.get_running_loop().run_in_executor(self._threads[is_own], look, languages, *rules)
            self._answers |= {uri: _Answer(exclusion, self._now_s()) for uri, exclusion in found.items()}
        finally:
            for uri in languages:
                del self._looks[is_own, uri]


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


class Guard:
    """Applies the settings `exclude` and `redactSecrets` to each request."""

    def __init__(self, policy: Policy | None = None, is_remote: bool = False) -> None:
        """`policy`: None for text of no file. `is_remote`: text may go to another machine, so it is without secrets."""
        self.exclusions = Exclusions(policy or Policy({}))
        self._is_remote = self._redacts = is_remote
        self._key = os.urandom(16)

    def configure(self, settings: Settings, folder_uris: Sequence[str], refusal: str | None = None) -> None:
        """Sets the settings and the URIs of the workspace's folders. Before that, nothing of a file may be sent.

        `refusal`: why the settings say nothing that can be relied on, so that nothing may be sent.
        """
        self._redacts = self._is_remote and settings.redact_secrets
        self.exclusions.configure(settings.exclude, folder_uris, refusal)

    def redact(self, text: str) -> str:
        """Returns a whole text as a request may have it. `clear` looks for secrets again, last."""
        return secrets.redact(text) if self._redacts else text

    def redact_context(self, context: Context) -> Context:
        """Returns the text around a cursor as a request may have it. Raises InSecretError if the cursor is in one."""
        return secrets.redact_context(context) if self._redacts else context

    def clear(self, request: _Request, uris: Iterable[str]) -> Cleared[_Request]:
        """Returns the request as it may be sent: without secrets, and with random names in place of its own.

        `uris`: of all files whose text is in it. Raises ExcludedError; InSecretError if its cursor is in a secret.
        """
        for uri in uris:
            if (exclusion := self.exclusions.find_exclusion(uri)) is not None:
                raise ExcludedError(exclusion, uri)
        cleared = self._remove_secrets(request) if self._redacts else request
        if isinstance(cleared, CompletionRequest):
            cleared = replace(cleared, document=self._hide(cleared.document))
        return Cleared(replace(cleared, tenant=self._hide(cleared.tenant)), _GuardOnly())

    def _remove_secrets(self, request: _Request) -> _Request:
        if isinstance(request, CompletionRequest):
            prefix, suffix = secrets.redact_parts([request.prefix, request.suffix], cursor=1)
            related = tuple(RelatedFile(*map(secrets.redact, (each.path, each.text))) for each in request.related)
            stop = secrets.list_harmless_stops(request.stop, request.prefix + request.suffix)
            path = secrets.redact(request.path)
            return replace(request, prefix=prefix, suffix=suffix, related=related, stop=stop, path=path)
        parts = [os.fsdecode(request.context), os.fsdecode(request.text)]
        has_cursor = request.ask not in ("surprisal", "probability")
        context, text = map(os.fsencode, secrets.redact_parts(parts, cursor=2 if has_cursor else None))
        return replace(request, context=context, text=text)

    def _hide(self, name: str) -> str:
        """The same name becomes the same digest while this process runs, and nobody can find it by guessing."""
        return name and blake2b(name.encode(), key=self._key, digest_size=16).hexdigest()
