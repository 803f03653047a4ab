"""The path that a document's URI names."""

import os
import re
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

_DRIVE = re.compile(r"/*([A-Za-z]):(?=[/\\]|$)")


@dataclass(frozen=True, slots=True)
class UriPath:
    """Where a document is. Paths that do not begin with `/` are only names."""

    paths: tuple[str, ...] = ()  # `?` and `#` may end a path or be a part of it, so both readings count
    elsewhere: str | None = None  # the machine or drive, if the paths are not those of this machine


def read_uri(uri: str) -> UriPath:
    """Returns the paths that a URI names, with `/` between their parts. Other schemes than `file` name paths, too.

    So `untitled:/home/me/.env` is judged as the file that it will be, and a cell of a notebook as its notebook.
    """
    scheme, _, rest = uri.partition(":")
    if len(scheme) == 1:  # not a URI, but a path on Windows
        return UriPath((_decode(uri).replace("\\", "/"),), f"the drive {scheme.upper()}:")
    authority = ""
    if rest.startswith("//"):
        authority, slash, rest = rest[2:].partition("/")
        rest = slash + rest
    if _DRIVE.match(_decode(authority)):  # file://C:/folder is wrong, but written
        authority, rest = "", f"/{authority}{rest}"
    paths = tuple(dict.fromkeys(_decode(part) for part in (re.split("[?#]", rest)[0], rest) if part))
    drive = _DRIVE.match(paths[0]) if paths else None
    if drive:
        return UriPath(tuple(path.replace("\\", "/") for path in paths), f"the drive {drive[1].upper()}:")
    if authority not in ("", "localhost"):
        return UriPath(paths, f"the machine {_decode(authority)}")
    return UriPath(paths)


def _decode(text: str) -> str:
    """Bytes that are not UTF-8 become what they are in the paths of `os`."""
    return os.fsdecode(unquote_to_bytes(text.encode("utf-8", "surrogatepass")))
