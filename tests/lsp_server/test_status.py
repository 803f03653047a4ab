"""What the user is told, and how often."""

from inference.errors import ServerError
from tests.support.lsp_editor import build_capabilities
from tests.support.lsp_in_process import InProcess


async def _fail(both: InProcess, character: int, text: str) -> None:
    number = len(both.backend.streams)
    answer = both.editor.ask(0, character)
    (await both.find_stream(number)).fail(ServerError(text))
    assert await answer is None


async def test_an_error_is_shown_once_until_a_completion_succeeds_and_the_state_is_told(both: InProcess) -> None:
    await both.start_with("x")
    for text in (*["the server\nbroke off"] * 3, ""):
        await _fail(both, 1, text)
    assert both.editor.shown == ["midtoken: the server broke off", "midtoken: ServerError"]
    for character in (1, 2):
        await both.ask_and_finish(0, character, "y")
        both.editor.edit(0, character, "z")
    await _fail(both, 3, "the server\nbroke off")
    assert both.editor.shown[2:] == ["midtoken: the server broke off"]
    told = [report[:3] for report in both.editor.reports]
    ready, failed = (None, "ready", "ready"), (None, "error", "refused")
    assert told == [ready, failed, failed, ready, failed]


async def test_a_problem_of_the_settings_is_shown_once(both: InProcess) -> None:
    await both.start(build_capabilities(answers_configuration=False))
    for names in ("a", "ab", "b", "", "b"):
        both.editor.push_settings({"midtoken": dict.fromkeys(names, 1)})
    await both.editor.client.shutdown_async(None)
    assert [text.split(";")[0] for text in both.editor.shown] == [
        f"midtoken: unknown setting '{name}'" for name in "ab"
    ]
