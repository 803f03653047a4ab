"""The gate that each request passes as it is sent: nothing of excluded documents, no secrets, and no names.

Only `midtoken.connection` has a client of the completion server, as an import contract says, and it sends nothing but
a `Cleared` request. `Guard.clear` is the last step: nothing can be added to what it returns.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Generic, TypeVar, final

from inference.protocol.completion import CompletionRequest, RelatedFile
from lsp_server.errors import ExcludedError
from lsp_server.privacy.exclusion import Policy
from lsp_server.privacy.exclusion_cache import ExclusionCache
from lsp_server.privacy.redaction import Redactor
from lsp_server.settings import Settings

if TYPE_CHECKING:  # it imports NumPy, and the language server does not
    from inference.protocol.characters import CharacterRequest

_MAX_TEXTS = 512  # of other files, and their paths, that are known without secrets

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


class Guard:
    """Applies the settings `exclude` and `redactSecrets` to each request."""

    def __init__(self, policy: Policy | None = None, is_remote: bool = False) -> None:
        """`policy`: None for text of no file. `is_remote`: text may go to another machine."""
        self.exclusions = ExclusionCache(policy or Policy({}))
        self.redactor = Redactor(is_strict=is_remote)  # for text of which requests are built; `clear` uses it last
        self._redact = lru_cache(_MAX_TEXTS)(Redactor.redact)  # each request tells the same of other files
        self._key = os.urandom(16)

    def configure(self, settings: Settings, folder_uris: Sequence[str], refusal: str | None = None) -> None:
        """Sets the settings and the URIs of the workspace's folders. Before that, nothing of a file may be sent.

        `refusal`: why the settings say nothing that can be relied on, so that nothing may be sent.
        """
        self.redactor = replace(self.redactor, is_on=settings.redact_secrets)
        self.exclusions.configure(settings.exclude, folder_uris, refusal)

    def clear(self, request: _Request, uris: Iterable[str]) -> Cleared[_Request]:
        """Returns the request as it may be sent: without secrets, and with random names in place of its own.

        `uris`: of all files whose text is in it. Raises ExcludedError; InSecretError if its cursor is in a secret.
        """
        for uri in uris:
            if (exclusion := self.exclusions.find_exclusion(uri)) is not None:
                raise ExcludedError(exclusion, uri)
        return Cleared(self._clean(request), _GuardOnly())

    def _clean(self, request: _Request) -> _Request:
        if isinstance(request, CompletionRequest):
            prefix, suffix = self.redactor.redact_parts([request.prefix, request.suffix], cursor=1)
            tenant, document = map(self._hide, (request.tenant, request.document))
            stop = self.redactor.redact_stops(request.stop, request.prefix + request.suffix)
            redact = partial(self._redact, self.redactor)
            related = tuple([RelatedFile(redact(each.path), redact(each.text)) for each in request.related])
            request = replace(request, related=related, path=redact(request.path))
            return replace(request, prefix=prefix, suffix=suffix, stop=stop, tenant=tenant, document=document)
        parts = [os.fsdecode(request.context), os.fsdecode(request.text)]
        has_cursor = request.ask not in ("surprisal", "probability")
        context, text = map(os.fsencode, self.redactor.redact_parts(parts, cursor=2 if has_cursor else None))
        return replace(request, context=context, text=text, tenant=self._hide(request.tenant))

    def _hide(self, name: str) -> str:
        """The same name becomes the same digest while this process runs, and nobody can find it by guessing."""
        return name and blake2b(name.encode(), key=self._key, digest_size=16).hexdigest()
