"""Whether one file gets suggestions."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from lsp_server.documents import MAX_CHARS
from lsp_server.privacy.exclusion import Policy
from midtoken.checks.check import Check, good, note, wrong

_KNOWN_ENDINGS = (".py", ".pyi")  # of the languages that the default model knows


def check_document(path: Path, environment: Mapping[str, str], has_default_model: bool) -> Iterator[Check]:
    """Yields why a file gets no suggestions, or that it gets them. The settings of an editor are not known here."""
    path = path.absolute()
    problems = [
        problem
        for problem in (_check_rules(path, environment), _check_size(path), _check_language(path, has_default_model))
        if problem is not None
    ]
    yield from problems or [good(f"{path} gets suggestions, unless the settings of your editor exclude it")]


def _check_rules(path: Path, environment: Mapping[str, str]) -> Check | None:
    reason = Policy(environment).find_exclusion(path.as_uri())
    if reason is None:
        return None
    return wrong(f"{path} is excluded: {reason}", "Change that rule if its text may be sent to the completion server.")


def _check_size(path: Path) -> Check | None:
    try:
        num_bytes = path.stat().st_size
        num_chars = len(path.read_bytes().decode()) if num_bytes > MAX_CHARS else num_bytes
    except FileNotFoundError:
        return note(f"{path} does not exist yet")
    except OSError as error:
        return wrong(f"{path} cannot be read: {error.strerror}", "Correct its path or its permissions.")
    except UnicodeDecodeError:
        return wrong(f"{path} is not UTF-8", "Suggestions are for text; convert it if it is text.")
    if num_chars > MAX_CHARS:
        return wrong(f"{path} has {num_chars:,} characters", f"Split it: files of up to {MAX_CHARS:,} get suggestions.")
    return None


def _check_language(path: Path, has_default_model: bool) -> Check | None:
    if not has_default_model or path.suffix in _KNOWN_ENDINGS:
        return None
    ending = f"the ending {path.suffix}" if path.suffix else "no ending"
    what = f"{path} has {ending}, and the default model knows only Python"
    return wrong(what, "Name a model that knows its language with --model.")
