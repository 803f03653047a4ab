"""What requests tell of other files of the workspace."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from lsprotocol import types

from inference.protocol.completion import CompletionRequest, Description, RelatedFile
from lsp_server import project_text
from tests.support.lsp_editor import WITHIN_S, wait_for
from tests.support.lsp_in_process import InProcess, run_in_process
from tests.support.secret_forms import SECRETS, count_secret_bytes

_MAIN = "from shapes import Circle\n\nprint(Cir"
_SHAPES = "class Circle(Shape):\n    def area(self, scale):\n        return secret_of_the_body\n"


class Workspace:
    """A folder with files, of which `main.py` is open."""

    def __init__(self, folder: Path, both: InProcess) -> None:
        self.folder = folder
        self.both = both

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    async def open(self, text: str = _MAIN, settings: Any = None, name: str = "main.py") -> None:
        self.both.editor.settings = settings
        self.both.editor.uri = self.write(name, text).as_uri()
        await self.both.start(None, None, "editor", self.folder)
        self.both.editor.open(text)

    async def ask(self) -> CompletionRequest:
        """Types a key elsewhere, so that no completion fits, and returns the request at the end of the document.

        Asks again if nothing is sent: the rules for the file may not be known yet, or a change has ended the request.
        """
        while True:
            number = len(self.both.backend.streams)
            self.both.editor.edit(1, 0, "x")
            asking = asyncio.ensure_future(self.both.editor.ask(2, len("print(Cir")))
            finding = asyncio.ensure_future(self.both.find_stream(number))
            either: set[asyncio.Future[Any]] = {finding, asking}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if finding.done():
                break
            finding.cancel()
            await asyncio.sleep(0.1)
        stream = finding.result()
        stream.finish("")
        await asking
        return stream.request

    async def ask_until(self, is_told: Callable[[tuple[RelatedFile, ...]], bool]) -> CompletionRequest:
        """Asks again until what is told is as wanted."""
        async with asyncio.timeout(5 * WITHIN_S):
            while not is_told((request := await self.ask()).related):
                await asyncio.sleep(0.1)
        return request


@pytest.fixture
async def workspace(tmp_path: Path) -> AsyncIterator[Workspace]:
    folder = tmp_path / "wörk space"
    folder.mkdir()
    async with run_in_process(index_dir=tmp_path / "indexes") as both:
        yield Workspace(folder, both)


async def test_a_key_finds_told_what_an_import_names_as_comments_with_its_path(workspace: Workspace) -> None:
    workspace.write("shapes.py", _SHAPES)
    await workspace.open()
    request = await workspace.ask_until(bool)
    assert request.related == (RelatedFile("shapes.py", "# shapes.py:\n# class Circle(Shape): area\n"),)
    assert request.path == "main.py"
    assert "secret_of_the_body" not in str(request)


async def test_a_model_that_was_trained_on_several_files_gets_them_without_comments(workspace: Workspace) -> None:
    workspace.both.backend.description = Description(repository_format="qwen")
    workspace.write("shapes.py", _SHAPES)
    await workspace.open()
    request = await workspace.ask_until(bool)
    assert request.related == (RelatedFile("shapes.py", "class Circle(Shape): area\n"),)


async def test_what_is_told_stays_while_somebody_types_and_changes_when_a_file_does(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lsp_server.project_text.REST_S", 3600.0)
    shapes = workspace.write("shapes.py", _SHAPES)
    await workspace.open()
    before = (await workspace.ask_until(bool)).related
    shapes.write_text("class Circle(Ellipse): ...\n")
    for _ in range(3):
        assert (await workspace.ask()).related == before
    workspace.both.editor.save(shapes)
    request = await workspace.ask_until(lambda related: related != before)
    assert request.related[0].text == "# shapes.py:\n# class Circle(Ellipse)\n"


async def test_a_document_that_is_saved_while_it_is_read_is_read_to_the_end(workspace: Workspace) -> None:
    workspace.write("shapes.py", _SHAPES)
    await workspace.open(_MAIN + ")\n" + "later = 1\n" * 4_000)  # takes longer to read than from one save to the next
    by_uri, uri = workspace.both.server.assistant.documents.by_uri, workspace.both.editor.uri

    def is_told_after_a_save() -> bool:
        workspace.both.editor.save()
        return uri in by_uri and bool(by_uri[uri].project.uris)

    await wait_for(is_told_after_a_save, 60)


async def test_a_rest_is_enough_for_another_import(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lsp_server.project_text.REST_S", 0.01)
    workspace.write("shapes.py", _SHAPES)
    workspace.write("colors.py", "def mix(red): ...\n")
    await workspace.open()
    await workspace.ask_until(bool)
    workspace.both.editor.edit(0, 0, "import colors; ")  # on the same line, because `ask` names lines by number
    await workspace.ask_until(lambda related: "mix" in str(related))


@pytest.mark.parametrize("settings", [{"exclude": ["shapes.*"]}, None])
async def test_nothing_of_an_excluded_file_is_told(workspace: Workspace, settings: Any) -> None:
    workspace.write("shapes.py", _SHAPES)
    workspace.write("colors.py", "def mix(red): ...\n")
    if settings is None:
        workspace.write(".midtokenignore", "shapes.py\n")
    await workspace.open("import colors, shapes\n\nprint(Cir", settings)
    request = await workspace.ask_until(bool)
    assert [each.path for each in request.related] == ["colors.py"]


async def test_a_file_that_is_excluded_later_is_told_no_more(workspace: Workspace) -> None:
    workspace.write("shapes.py", _SHAPES)
    await workspace.open()
    await workspace.ask_until(bool)
    workspace.write(".midtokenignore", "shapes.py\n")
    await workspace.ask_until(lambda related: related == ())


async def test_no_secret_of_another_file_is_told(workspace: Workspace) -> None:
    text = "{0} = '{1}'\ndef f_{0}(key='{1}'): ...\nclass C_{0}:\n    key = '{1}'\n# {1}\n"
    secrets = [each for each in SECRETS if len(each.secret) >= 8]
    for number, each in enumerate(secrets):
        workspace.write(f"m{number}.py", text.format(f"Name{number}", each.text.rstrip("\n")))
    imports = "".join(f"import m{number}\n" for number in range(len(secrets)))
    await workspace.open(f"{imports}\nprint(Cir", {"context": 8192})
    request = await workspace.ask_until(bool)
    assert str(request.related).count("Name") > 50
    for each in secrets:
        assert count_secret_bytes([str(request.related)], [each.secret], min_chars=8) == 0, each.form


async def test_a_language_without_a_grammar_is_told_nothing(workspace: Workspace) -> None:
    workspace.write("shapes.py", _SHAPES)
    workspace.both.editor.language_id = "lua"
    await workspace.open(name="main.lua")
    await wait_for(lambda: any(each.report for each in workspace.both.server.assistant.project.projects.values()))
    assert (await workspace.ask()).related == ()


async def test_a_document_is_read_though_the_index_cannot_be(workspace: Workspace) -> None:
    await workspace.open()
    projects = workspace.both.server.assistant.project.projects
    await wait_for(lambda: any(each.report for each in projects.values()))
    (project,) = projects.values()
    for each in project.database.parent.iterdir():
        each.unlink()
    project.database.mkdir()
    workspace.both.editor.edit(0, 0, "def later(): ...\n")
    workspace.both.server.assistant.project.refresh_all()
    document = workspace.both.server.assistant.documents.by_uri[workspace.both.editor.uri]
    await wait_for(lambda: document.project.summary.declarations != ())


async def test_another_open_document_is_read_as_it_is_in_the_editor(workspace: Workspace) -> None:
    await workspace.open("\n\nprint(Cir")
    uri = (workspace.folder / "other.py").as_uri()  # not on the disk yet
    item = types.TextDocumentItem(uri, "python", 1, "def Circumference(radius): ...\n")
    workspace.both.editor.client.text_document_did_open(types.DidOpenTextDocumentParams(item))
    async with asyncio.timeout(WITHIN_S):
        while "# def Circumference(radius)\nprint(Cir" not in (await workspace.ask()).prefix:
            await asyncio.sleep(0.05)


def test_a_rest_is_longer_than_a_pause_between_keys() -> None:
    assert project_text.REST_S > 1.0
