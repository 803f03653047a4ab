"""The scripted language server on a disk where each look takes 5 ms: `python -m benchmarks.measures.slow_disk FILE`.

The functions of `os` with which it looks at paths and opens ignore files sleep first. As in a system call, other
threads run meanwhile, so that only a look in the thread of the keys delays a key.
"""

import os
import time
from collections.abc import Callable
from typing import Any

from tests.support.scripted_server import main

_DELAY_S = 0.005


def _delay(function: Callable[..., Any]) -> Callable[..., Any]:
    def delayed(*arguments: Any, **named: Any) -> Any:
        time.sleep(_DELAY_S)
        return function(*arguments, **named)

    return delayed


if __name__ == "__main__":
    for name in ("stat", "lstat", "readlink", "open", "listdir", "scandir"):
        setattr(os, name, _delay(getattr(os, name)))
    main()
