"""The file `midtoken.json` of a model folder. It says what suits this model best; settings go before it.

    {"fill_in": {"layout": "spm"}, "dtype": "int8", "context_tokens": 512, "languages": ["python"]}

`fill_in` is how the model is given the text after the cursor (`inference.engine.fill_in`), `dtype` the
type of numbers in which its completions were measured to be as good as in float32, and `context_tokens` the length of
the prompt beyond which they were measured to become no better. `languages` are those that the model knows, if it is not
a model of many, by their identifiers in LSP.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from inference.config import MIN_PROMPT_TOKENS
from inference.errors import ModelError, quote, refuse
from inference.model_folder import read_object

FILE_NAME = "midtoken.json"
_KEYS = ("fill_in", "dtype", "context_tokens", "languages")
_DTYPES = ("float32", "int8", "int4")


@dataclass(frozen=True, slots=True)
class FolderFile:
    """The content of the file; the defaults if there is none."""

    fill_in: dict[str, Any] = field(default_factory=dict)
    dtype: str | None = None
    context_tokens: int | None = None
    languages: tuple[str, ...] = ()  # empty: any


def read_folder_file(folder: Path) -> FolderFile:
    """The file in a model folder. Raises ModelError if it is wrong."""
    path = folder / FILE_NAME
    values = check_keys(path, "the file", read_object(path), _KEYS)
    dtype, context_tokens = values.get("dtype"), values.get("context_tokens")
    fill_in, languages = values.get("fill_in", {}), values.get("languages", [])
    refuse(
        ModelError,
        {
            f"{path}: dtype must be one of {', '.join(_DTYPES)}, not {quote(repr(dtype))}": (
                dtype is not None and dtype not in _DTYPES
            ),
            f"{path}: fill_in must be a JSON object": not isinstance(fill_in, dict),
            f"{path}: context_tokens must be a whole number, at least {MIN_PROMPT_TOKENS}": (
                context_tokens is not None and (type(context_tokens) is not int or context_tokens < MIN_PROMPT_TOKENS)
            ),
            f"{path}: languages must be a list of names": (
                not isinstance(languages, list) or not all(isinstance(each, str) and each for each in languages)
            ),
        },
    )
    return FolderFile(fill_in, dtype, context_tokens, tuple(languages))


def check_keys(path: Path, name: str, value: Any, known: tuple[str, ...]) -> dict[str, Any]:  # Any: parsed JSON
    """The value, if it is an object with known keys only. Raises ModelError."""
    if not isinstance(value, dict):
        raise ModelError(f"{path}: {name} must be a JSON object")
    refuse(
        ModelError,
        {
            f"{path}: unknown key {quote(key)} in {name}; known are {', '.join(known)}": key not in known
            for key in value
        },
    )
    return value
