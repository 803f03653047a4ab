"""What editors say about the suggestions: which were shown, and which were accepted, whole or in part.

LSP has no messages for this. The two notifications are those that clients of other completion servers send. Acceptance
is the item's command, which a client executes after it has inserted the text (LSP, InlineCompletionItem.command).
"""

from typing import Any

from lsprotocol import types

from lsp_server.server import MidtokenServer

DID_SHOW = "textDocument/didShowCompletion"
DID_ACCEPT_PART = "textDocument/didPartiallyAcceptCompletion"
DID_ACCEPT = "midtoken.didAccept"
COUNTERS = "midtoken.counters"


def add_usage_features(server: MidtokenServer) -> None:
    """Adds the notifications, and the commands that report acceptance and return the counters."""

    # The parameters have no type in lsprotocol, hence Any. Other clients may send anything.
    @server.feature(DID_SHOW)
    def _show(params: Any) -> None:
        number = _find_number(params)
        if number is not None:
            server.counters.note_shown(number)

    @server.feature(DID_ACCEPT_PART)
    def _accept_part(params: Any) -> None:
        length = _get(params, "acceptedLength")
        if isinstance(length, int) and length > 0:
            server.counters.note_part(length)

    @server.command(DID_ACCEPT)
    def _accept(*_: Any) -> None:
        server.counters.accepted += 1

    @server.command(COUNTERS)
    def _count(*_: Any) -> dict[str, Any]:
        return server.counters.to_json()


def add_acceptance(item: types.InlineCompletionItem, number: int) -> types.InlineCompletionItem:
    """Returns the item with the command that reports its acceptance."""
    item.command = types.Command(title="accepted", command=DID_ACCEPT, arguments=[number])
    return item


def _find_number(params: Any) -> int | None:
    """The number that `add_acceptance` has put into an item."""
    arguments = _get(_get(_get(params, "item"), "command"), "arguments")
    number = arguments[0] if isinstance(arguments, list) and arguments else None
    return number if isinstance(number, int) else None


def _get(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None
