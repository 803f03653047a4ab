import re
import subprocess
import sys

import pytest

from inference.errors import describe_failure, quote


@pytest.mark.parametrize("character", ["a", "\x00", "😀"])
def test_a_long_text_is_quoted_in_part_with_its_length(character: str) -> None:
    quoted = quote(character * 2**20)

    assert len(quoted) < 400
    assert quoted.startswith(repr(character)[:-1])
    assert quoted.endswith("1048576 characters")


def test_a_failure_is_described_by_its_type_and_place_without_its_text() -> None:
    def fail() -> None:
        raise RuntimeError("secret")

    with pytest.raises(RuntimeError) as caught:
        fail()
    described = describe_failure(caught.value)
    assert described.startswith("RuntimeError at ")
    assert "inference/test_errors.py:" in described
    assert described.endswith(" in fail")
    assert "secret" not in described


def test_a_failure_in_a_deep_recursion_has_a_short_description() -> None:
    def recurse() -> None:
        recurse()

    with pytest.raises(RecursionError) as caught:
        recurse()

    assert len(describe_failure(caught.value)) < 3000


@pytest.mark.parametrize(
    "failure",
    [
        "logging.getLogger('aiohttp.server').error('cannot read %s', canary, exc_info=ValueError(canary))",
        "threading.Thread(target=int, args=(canary,)).start()",
        "asyncio.run(lose(canary))",
        "asyncio.run(call(canary))",
        "Unraisable()",
        "int(canary)",
    ],
)
def test_what_libraries_log_and_what_nobody_catches_is_written_without_its_text(failure: str) -> None:
    program = f"""
import asyncio, gc, logging, threading
from inference.errors import silence_libraries
async def lose(text):
    asyncio.ensure_future(asyncio.to_thread(int, text))
    await asyncio.sleep(0.1)
    gc.collect()
async def call(text):
    asyncio.get_running_loop().call_soon(int, text)
    await asyncio.sleep(0)
class Unraisable:
    def __del__(self):
        int(canary)
silence_libraries()
canary = "Kanari" + "7vogel"
{failure}
"""
    command = [sys.executable, "-c", program]
    written = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stderr
    assert ("Error" in written, "Kanari7vogel" in written) == (True, False), written


def test_no_thread_changes_the_environment_that_another_reads() -> None:
    program = """
import numpy, sys, threading
from inference.errors import silence_libraries
silence_libraries()
sys.addaudithook(lambda event, _: event in ("os.putenv", "os.unsetenv") and print("changed"))
def load():
    import inference.model.onnx.session as session
    print(session.VERSION)
thread = threading.Thread(target=load)
thread.start()
thread.join()
"""
    command = [sys.executable, "-c", program]
    written = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    assert re.fullmatch(r"[\d.]+\n", written)
