"""Keeps source text out of pygls's log, which goes to standard error and so into the editor's log files."""

import logging
import re
from typing import Any

from lsprotocol.types import METHOD_TO_TYPES

_PLACEHOLDER = re.compile("%[rsd]")


def keep_text_out_of_logs() -> None:
    """Keeps message bodies and tracebacks out of pygls's logs, because both may contain source text.

    A record keeps its own words, the LSP methods that it names, and the kind of the error.
    """
    logging.getLogger("pygls").setLevel(logging.WARNING)  # at INFO it logs every body
    for name in ("pygls.protocol.json_rpc", "pygls.protocol.language_server", "pygls.server"):
        logging.getLogger(name).addFilter(_remove_text)


def _remove_text(record: logging.LogRecord) -> bool:
    arguments = iter(record.args if isinstance(record.args, tuple) else ())
    text = _PLACEHOLDER.sub(lambda _: _show(next(arguments, None)), str(record.msg))
    kind = record.exc_info[0] if record.exc_info else None
    record.msg = f"midtoken: {text}" + (f" ({kind.__name__})" if kind else "")
    record.args, record.exc_info, record.exc_text = (), None, None
    return True


def _show(argument: Any) -> str:
    return argument if isinstance(argument, str) and argument in METHOD_TO_TYPES else "…"
