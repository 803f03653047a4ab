"""The commands of LSP's workspace/executeCommand. Their arguments are any JSON, hence Any."""

from typing import Any

from lsprotocol.types import Command
from pygls.exceptions import JsonRpcInvalidParams

from lsp_server import usage
from lsp_server.documents import Document
from lsp_server.quiet import LIST, MAX_SNOOZE, SNOOZE, SNOOZES, TOGGLE, WAKE, Scope, describe, list_scopes
from lsp_server.server import MidtokenServer
from lsp_server.status import Window


def add_commands(server: MidtokenServer) -> None:
    """Adds the commands to a server. One that is given no document is for the one that was opened or edited last."""

    def _snooze_for(minutes: int) -> None:
        server.quiet.snooze(minutes)
        server.note_quiet()  # not all editors show the state, so it is also said
        Window(server).show(f"snoozed for {describe(minutes)}" if minutes else "the snooze is over")

    server.command(SNOOZE)(lambda *arguments: _snooze_for(_read_minutes(*arguments)))
    server.command(WAKE)(lambda *_: _snooze_for(0))

    @server.command(TOGGLE)
    def _toggle(*arguments: Any) -> None:
        scope = _find_scope(server, *arguments)
        state = "on" if server.quiet.toggle(scope) else "off until the editor is closed"
        server.note_quiet()
        Window(server).show(f"suggestions in {scope.name} are {state}")

    @server.command(LIST)
    def _list(*arguments: Any) -> list[Command]:
        document = _find_document(server, *arguments)
        scopes = [] if document is None else _list_scopes(server, document)
        return server.quiet.list_commands(scopes, document.uri if document else "")

    @server.command("midtoken.stats")
    def _show_statistics(*_: Any) -> str:
        """Returns a text for the user: what was counted in the last days, by all editors."""
        if not server.documents.settings.stats:
            return "The setting stats is false, so nothing is counted here.\n"
        server.usage.write()
        return usage.describe(server.usage.read())


def _read_minutes(minutes: Any = SNOOZES[0], *others: Any) -> int:
    if others or isinstance(minutes, bool) or minutes not in range(MAX_SNOOZE + 1):
        raise JsonRpcInvalidParams(f"{SNOOZE} takes the minutes, a whole number from 0 to {MAX_SNOOZE}")
    return int(minutes)


def _find_scope(server: MidtokenServer, kind: Any = "document", *uri: Any) -> Scope:
    document = _find_document(server, *uri)
    for scope in [] if document is None else _list_scopes(server, document):
        if scope.kind == kind:
            return scope
    raise JsonRpcInvalidParams(f"{TOGGLE} takes document, language or folder, and the URI of an open document")


def _list_scopes(server: MidtokenServer, document: Document) -> list[Scope]:
    return list_scopes(document, server.workspace.folders)


def _find_document(server: MidtokenServer, uri: Any = None, *_: Any) -> Document | None:
    found = [each for key, each in server.documents.by_uri.items() if uri in (None, key)]
    return found[-1] if found else None
