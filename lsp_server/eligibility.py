"""Which documents get suggestions, and why the others do not."""

from lsp_server.privacy.guard import Guard
from lsp_server.reporting.reasons import Reason, Silence, to_silence
from lsp_server.settings import ANY_LANGUAGE, Settings
from lsp_server.text.documents import Document


def find_document_silence(
    document: Document, settings: Settings, model_languages: tuple[str, ...] | None, guard: Guard
) -> Silence | None:
    """Returns why a document gets no suggestions; None if it gets them. `model_languages` None: the model knows any."""
    if not settings.enabled:
        return Silence(Reason.DISABLED, "the setting enabled is false")
    if document.problem is not None:
        return to_silence(document.problem)
    exclusion = guard.find_exclusion(document.uri)
    if exclusion is not None:
        return Silence(Reason.EXCLUDED, f"nothing of this file is sent: {exclusion}")
    languages = model_languages if settings.languages is None else settings.languages
    if languages is None or document.language_id in languages or ANY_LANGUAGE in languages:
        return None
    name = document.language_id or "files without a language"
    if settings.languages is not None:
        return Silence(Reason.OTHER_LANGUAGE, f"the setting languages does not list {name}")
    return Silence(
        Reason.OTHER_LANGUAGE,
        f"the default model knows only {', '.join(languages)}, so there are no suggestions for {name}; start "
        "midtoken lsp with --model, or list the languages that you want all the same in the setting languages",
    )
