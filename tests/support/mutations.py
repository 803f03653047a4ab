"""Changes of JSON and of bytes, as a broken or hostile client makes them."""

import json
from random import Random
from typing import Any

_ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 3.5, 2**31, 2**63, -(2**63) - 1, 10**30, 1e308, float("inf"), float("nan")),
    *("", "x", "\0", "\ud800", "\u202e", "é😀", "null", "a" * 2000, "\n\r\u2028", "../../etc", "file:///", "%zz"),
    *([], {}, [[]], [None], {"": None}, ["a", 1], {"a": {"b": []}}),
)


def change_json(value: Any, random: Random) -> tuple[Any, tuple[str, ...]]:
    """A copy of an object in which one value is another one, or is missing, twice or under another name.

    Returns also the names of the field that was changed, the outermost first.
    """
    copy = json.loads(json.dumps(value))
    places = [*_iter_places(copy, ())]
    if not places:
        return random.choice(_ODD), ()
    *path, name = random.choice(places)
    holder = copy
    for each in path:
        holder = holder[each]
    match random.choices(("replace", "remove", "rename", "double", "nest"), (10, 3, 2, 2, 1))[0]:
        case "replace":
            holder[name] = random.choice(_ODD)
        case "double":
            holder[name] = [holder[name], holder[name]]
        case "nest":
            for _ in range(random.choice((1, 40, 300))):
                holder[name] = [holder[name]]
        case change:
            left = holder.pop(name)
            if change == "rename" and isinstance(holder, dict):
                holder[f"{name}{random.choice('sX_')}"] = left
    return copy, tuple([each for each in (*path, name) if isinstance(each, str)])


def change_bytes(data: bytes, random: Random) -> bytes:
    """Some bytes are others, missing, twice or cut off."""
    changed = bytearray(data)
    for _ in range(random.randint(1, 4)):
        start = random.randint(0, len(changed))
        end = min(start + random.randint(0, 5), len(changed))
        changed[start:end] = random.choice(
            (random.randbytes(3), b"", bytes(changed[start:end]) * 2, b"\0", b'"', b"{[")
        )
    return bytes(changed if random.random() < 0.8 else changed[: random.randint(0, len(changed))])


def draw_odd(random: Random) -> Any:
    """A value that nobody expects."""
    return random.choice(_ODD)


def _iter_places(value: Any, path: tuple[Any, ...]) -> Any:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, each in items:
        yield (*path, name)
        yield from _iter_places(each, (*path, name))
