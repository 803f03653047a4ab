import asyncio
import sys

from midtoken.playground.sockets import LanguageServerProcess

_IGNORES_ITS_INPUT = "import time; time.sleep(1000)"


async def test_the_end_of_the_process_is_the_end_of_the_messages() -> None:
    server = await LanguageServerProcess.start(("true",))
    assert await server.read() is None
    await server.send(b"{}")
    await server.send(b"{}")
    await server.close()


async def test_a_message_that_breaks_off_is_the_end() -> None:
    server = await LanguageServerProcess.start(("printf", "Content-Length: 10\r\n\r\n{"))
    assert await server.read() is None
    await server.close()


async def test_a_process_that_does_not_end_is_killed() -> None:
    command = (sys.executable, "-c", _IGNORES_ITS_INPUT)
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    await LanguageServerProcess(process, end_s=0.01).close()
    assert process.returncode == -9
