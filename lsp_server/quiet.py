"""Quiet that a person asked for: a snooze, and no suggestions in a document, a language or a folder."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from lsprotocol.types import Command

from lsp_server.documents import Document
from lsp_server.no_suggestion import NoSuggestion, Reason

# Of workspace/executeCommand.
SNOOZE, WAKE, TOGGLE, LIST = "midtoken.snooze", "midtoken.wake", "midtoken.toggle", "midtoken.listCommands"
SNOOZES = (15, 5, 60)  # minutes; the first one unless another is named
MAX_SNOOZE = 24 * 60


@dataclass(frozen=True, slots=True)
class Scope:
    """Where suggestions can be turned off."""

    kind: str  # document, language or folder
    key: str  # a URI, or the identifier of a language
    name: str  # completes "suggestions in …"

    def contains(self, other: "Scope") -> bool:
        """True for the same scope, and for a folder in this one."""
        return other.key == self.key or (self.kind == other.kind == "folder" and other.key.startswith(self.key + "/"))


def list_scopes(document: Document, folder_uris: Iterable[str]) -> list[Scope]:
    """Returns the scopes of a document. Its folder is that of the workspace, or else the one that it is in."""
    uri, language = document.file_uri, document.language_id
    folders = [each for each in folder_uris if uri.startswith(each.rstrip("/") + "/")]
    folder = max(folders, key=len, default=uri.rpartition("/")[0])
    folder = folder.rstrip("/")
    scopes = [
        Scope("document", uri, "this file"),
        Scope("language", language, f"{language} files"),
        Scope("folder", folder, f"the folder {folder.rpartition('/')[2]}"),
    ]
    return [each for each in scopes if each.key]


class Quiet:
    """The snooze, and the scopes without suggestions, until the language server ends.

    While it is snoozed, nothing is sent unless a person asks for a suggestion.
    """

    def __init__(self, on_snooze: Callable[[int], None], minute_s: float = 60.0) -> None:
        """`on_snooze` is called with the minutes that are left, whenever they change. 0: the snooze is over."""
        self.minutes_left = 0
        self.minute_s = minute_s
        self._on_snooze = on_snooze
        self._timer: asyncio.TimerHandle | None = None
        self._off: list[Scope] = []

    def snooze(self, minutes: int) -> None:
        """Snoozes from now on. 0 ends the snooze."""
        if self._timer is not None:
            self._timer.cancel()
        self.minutes_left, self._timer = minutes, None
        if minutes:
            self._timer = asyncio.get_running_loop().call_later(self.minute_s, lambda: self.snooze(minutes - 1))
        self._on_snooze(minutes)

    def toggle(self, scope: Scope) -> bool:
        """Turns suggestions off in a scope, or on again, in a folder around it, too. Returns whether they are on."""
        others = [each for each in self._off if not each.contains(scope)]
        is_on = len(others) < len(self._off)
        self._off = others if is_on else [*others, scope]
        return is_on

    def find_reason(self, scopes: Iterable[Scope]) -> NoSuggestion | None:
        """Returns why a document of these scopes gets no suggestions; None if it may get them."""
        off = self._find_off(scopes)
        return NoSuggestion(Reason.TURNED_OFF, f"you turned suggestions off in {off.name}") if off else None

    def list_commands(self, scopes: Iterable[Scope], uri: str) -> list[Command]:
        """Returns what a menu offers for the document that has these scopes and this URI."""
        wake = Command(f"End the snooze ({describe(self.minutes_left)} left)", WAKE)
        snoozes = [Command(f"Snooze for {each} minutes", SNOOZE, arguments=[each]) for each in sorted(SNOOZES)]
        toggles = (self._offer_toggle(each, uri) for each in scopes)
        return [*([wake] if self.minutes_left else snoozes), *toggles]

    def _offer_toggle(self, scope: Scope, uri: str) -> Command:
        state = "on" if self._find_off([scope]) else "off"
        return Command(f"Turn suggestions {state} in {scope.name}", TOGGLE, arguments=[scope.kind, uri])

    def _find_off(self, scopes: Iterable[Scope]) -> Scope | None:
        return next((off for each in scopes for off in self._off if off.contains(each)), None)


def describe(minutes: int) -> str:
    """Returns a number of minutes in words."""
    return "1 minute" if minutes == 1 else f"{minutes} minutes"
