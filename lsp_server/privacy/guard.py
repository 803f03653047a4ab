"""What a language server asks before it sends text: whether the document is excluded, and the text without secrets."""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from lsp_server.context import Context
from lsp_server.privacy.exclusion import Policy
from lsp_server.privacy.redaction import Excerpt, Redactor


class Guard:
    """Applies the settings `exclude` and `redactSecrets`."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._redacts = True
        self._redactor: Future[Redactor] | None = None

    def configure(self, exclude: Sequence[str], folder_uris: Sequence[str], redacts_secrets: bool) -> None:
        """Sets the two settings and the URIs of the workspace's folders."""
        self._policy.configure(exclude, folder_uris)
        self._redacts = redacts_secrets

    def prepare(self) -> None:
        """Begins to load the rules for secrets in a thread. That takes a quarter of a second."""
        if self._redacts and self._redactor is None:
            executor = ThreadPoolExecutor(1, "midtoken-secrets")
            self._redactor = executor.submit(Redactor)
            executor.shutdown(wait=False)

    def find_exclusion(self, uri: str) -> str | None:
        """Returns why nothing of a document may be sent; None if it may. See `Policy.find_exclusion`."""
        return self._policy.find_exclusion(uri)

    def redact(self, text: str) -> str:
        """Returns whole lines of a document without secrets. See `Redactor.redact`."""
        return self._find_redactor().redact(text) if self._redacts else text

    def redact_excerpt(self, excerpt: Excerpt) -> Context | None:
        """Returns the context to send; None if the cursor is in a secret."""
        return excerpt.redact(self._find_redactor()) if self._redacts else excerpt.context

    def _find_redactor(self) -> Redactor:
        self.prepare()
        assert self._redactor is not None, "prepared above"
        return self._redactor.result()
