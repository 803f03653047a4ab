"""Whether one file gets suggestions, by the rules of the language server."""

from collections.abc import Mapping
from pathlib import Path

from lsprotocol.types import PositionEncodingKind, TextDocumentItem

from lsp_server.documents import Document
from lsp_server.no_suggestion import find_document_reason
from lsp_server.privacy.exclusion import Policy
from lsp_server.privacy.guard import Guard
from lsp_server.settings import Settings
from midtoken.checks.check import Check, good, note, wrong

_LANGUAGES = {".py": "python", ".pyi": "python"}  # the identifiers that editors give files with these endings


def check_document(path: Path, environment: Mapping[str, str], model_languages: tuple[str, ...] | None) -> Check:
    """Checks a file with the default settings. Those of an editor are not known here.

    `model_languages`: the languages that the model knows; None: any.
    """
    path = path.absolute()
    try:
        text = path.read_bytes().decode() if path.exists() else ""
    except OSError as error:
        return wrong(f"{path} cannot be read: {error.strerror}", "Correct its path or its permissions.")
    except UnicodeDecodeError:
        return wrong(f"{path} is not UTF-8, so it is no text that can be completed", "Convert it if it is text.")
    language = _LANGUAGES.get(path.suffix, path.suffix.removeprefix("."))
    document = Document(TextDocumentItem(path.as_uri(), language, 0, text), PositionEncodingKind.Utf8)
    found = find_document_reason(document, Settings(), model_languages, Guard(Policy(environment)))
    if found is not None:
        return wrong(f"{path} gets no suggestions ({found.reason}): {found.message}", "")
    if not path.exists():
        return note(f"{path} does not exist yet; it would get suggestions")
    return good(f"{path} gets suggestions, unless the settings of your editor exclude it")
