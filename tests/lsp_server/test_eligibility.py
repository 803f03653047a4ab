"""Which documents get no suggestions, and what their users are told."""

from lsprotocol import types

from lsp_server.text.documents import MAX_CHARS
from tests.support.lsp_editor import URI, wait_for
from tests.support.lsp_in_process import run_in_process

_NOTHING = types.InlineCompletionList(())


async def test_another_language_than_the_models_is_said_once() -> None:
    async with run_in_process(languages=("python",)) as both:
        await both.start()
        both.editor.language_id = "rust"
        both.editor.open("fn main")
        assert await both.editor.ask(0, 7) == _NOTHING
        assert await both.editor.ask(0, 7) == _NOTHING
        (report,) = both.editor.reports
        assert report[:3] == (URI, "off", "other_language")
        (message,) = both.editor.shown
        assert message.startswith(
            "midtoken: the default model knows only python, so there are no suggestions for rust;"
        )
        both.editor.close()
        both.editor.open("fn other")
        await wait_for(lambda: len(both.editor.reports) == 2)
        assert len(both.editor.shown) == 1
        assert both.num_connects == 0


async def test_the_setting_languages_decides_for_any_model() -> None:
    async with run_in_process(languages=("python",)) as both:
        await both.start(options={"languages": ["rust"]})
        both.editor.language_id = "rust"
        both.editor.open("fn main")
        await wait_for(lambda: both.num_connects == 1)
        both.editor.settings = {"languages": ["go"]}
        both.editor.push_settings({})
        await wait_for(lambda: any(report[0] for report in both.editor.reports))
        assert both.editor.reports[1:] == [(URI, "off", "other_language", "the setting languages does not list rust")]
        both.editor.settings = {"languages": ["*"]}
        both.editor.push_settings({})
        await wait_for(lambda: len(both.editor.reports) == 3)
        assert both.editor.reports[2][:3] == (URI, "ready", "ready")


async def test_a_document_that_is_too_large_gets_no_suggestions_until_it_is_smaller() -> None:
    async with run_in_process() as both:
        await both.start()
        both.editor.open("x" * (MAX_CHARS + 1))
        assert await both.editor.ask(0, 1) == _NOTHING
        assert both.editor.reports[0][:3] == (URI, "off", "too_large")
        assert both.editor.shown == [
            "midtoken: the document has more than 10 million characters, so it gets no suggestions"
        ]
        both.editor.edit(0, 0, "y")
        both.editor.replace_all("x = ")
        await wait_for(lambda: len(both.editor.reports) > 1)
        assert both.editor.reports[1][:2] == (URI, "ready")
        answer = both.editor.ask(0, 4)
        await wait_for(lambda: both.backend.streams != [])
        assert both.backend.streams[0].request.prefix == "x = "
        both.backend.streams[0].finish("1")
        assert await answer != _NOTHING


async def test_a_document_that_grows_too_large_loses_its_suggestions() -> None:
    async with run_in_process() as both:
        await both.start()
        both.editor.open("")
        both.editor.edit(0, 0, "x" * (MAX_CHARS + 1))
        await wait_for(lambda: both.editor.reports != [] and both.editor.reports[-1][1] == "off")
        assert both.editor.reports[-1][2] == "too_large"


async def test_each_request_without_a_suggestion_has_its_reason_in_the_log() -> None:
    async with run_in_process() as both:
        await both.start()
        both.editor.open("value")
        await both.editor.ask(0, 2)
        answer = both.editor.ask(0, 5)
        await wait_for(lambda: both.backend.streams != [])
        both.backend.streams[0].finish("")
        await answer
        assert [line for line in both.editor.logged if "no suggestion" in line] == [
            "no suggestion (inside_word)",
            "no suggestion (nothing)",
        ]


async def test_who_asks_in_a_document_without_suggestions_is_told_why() -> None:
    async with run_in_process() as both:
        await both.start(options={"enabled": False})
        both.editor.open("x")
        await both.editor.ask(0, 1)
        assert both.editor.shown == []
        await both.editor.ask(0, 1, is_invoked=True)
        assert both.editor.shown == ["midtoken: no suggestion: the setting enabled is false"]
