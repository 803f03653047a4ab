"""The id of a request from its client to the engine, as in W3C Trace Context (level 1): `traceparent`.

It is `00-TRACE-PARENT-FLAGS` in hexadecimal digits. The trace id is the id of the request in logs.
"""

import re
import secrets

_FORM = re.compile(r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_ID = re.compile(r"(?!0{32})[0-9a-f]{32}")


def new_traceparent(request_id: str = "") -> str:
    """A traceparent of this request; of a new one if the id is none. UUIDs are ids, too.

    It allows servers to record the request.
    """
    given = request_id.lower().replace("-", "")
    return f"00-{given if _ID.fullmatch(given) else secrets.token_hex(16)}-{secrets.token_hex(8)}-01"


def find_request_id(traceparent: str) -> str:
    """The request's id; empty if this is no traceparent."""
    found = _FORM.fullmatch(traceparent)
    return found[1] if found else ""
