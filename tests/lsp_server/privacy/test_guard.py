"""What a request may say, whatever it was built of."""

import dataclasses
from typing import Any

import pytest

from inference.protocol.characters import CharacterRequest
from inference.protocol.completion import CompletionRequest, RelatedFile
from lsp_server.errors import InSecretError
from lsp_server.privacy.guard import Guard
from tests.support.secret_forms import SECRETS


@pytest.mark.parametrize("kind", [CompletionRequest, CharacterRequest])
def test_each_text_of_a_request_is_cleared_and_each_other_field_stays(kind: type[Any]) -> None:
    """A new field that is a text is not forgotten."""
    secret = SECRETS[0].secret
    line = f'key = "{secret}"\n'
    values = {"str": line, "tuple[str, ...]": (line,), "bytes": line.encode()}
    values |= {"related": (RelatedFile(line, line),)}
    types = {each.name: getattr(each.type, "__name__", str(each.type)) for each in dataclasses.fields(kind)}
    types |= {name: kind for name, kind in (("stop", "tuple[str, ...]"), ("related", "related")) if name in types}
    texts = {name: values[type] for name, type in types.items() if type in values}
    assert len(texts) == {CompletionRequest: 7, CharacterRequest: 3}[kind]
    request = kind(**{**({"text": b""} if kind is CharacterRequest else {}), **texts})
    cleared = Guard(is_remote=True).clear(request, ()).value
    assert secret not in repr(cleared)
    assert {name for name in types if getattr(request, name) != getattr(cleared, name)} == texts.keys()


def test_on_this_machine_only_names_are_replaced() -> None:
    request = CompletionRequest(f'key = "{SECRETS[0].secret}"\n', tenant="me", document="a.py", stop=("x",))
    cleared = Guard().clear(request, ()).value
    assert dataclasses.replace(cleared, tenant="me", document="a.py") == request
    assert not {cleared.tenant, cleared.document} & {"me", "a.py"}


def test_a_request_whose_cursor_is_in_a_secret_is_refused() -> None:
    with pytest.raises(InSecretError):
        Guard(is_remote=True).clear(CompletionRequest(f"key = '{SECRETS[0].secret}", suffix="'\n"), ())


@pytest.mark.parametrize("stop", ["•", '•"\n', "x•", "\n\n"])
def test_a_stop_string_does_not_say_what_was_replaced_in_its_prompt(stop: str) -> None:
    secret = "qZ7kL" + "mw2Xp0v"
    for prefix, suffix in ((f'password = "{secret}"\nx', ""), ("x", f'\npassword = "{secret}"\n')):
        request = CompletionRequest(prefix, suffix=suffix, stop=(stop.replace("•", secret), secret[:9]))
        assert Guard(is_remote=True).clear(request, ()).value.stop == (() if "•" in stop else (stop,))


@pytest.mark.parametrize("stop", ['= "•', '•"\n', "•"])
@pytest.mark.parametrize("part", [slice(4), slice(-4, None), slice(2, 9)], ids=str)
def test_a_stop_string_does_not_say_a_part_of_what_was_replaced(stop: str, part: slice) -> None:
    secret = "qZ7kL" + "mw2Xp0v"
    request = CompletionRequest(text := f'password = "{secret}"\nx', stop=(stop.replace("•", secret[part]),))
    if request.stop[0] in text:
        assert Guard(is_remote=True).clear(request, ()).value.stop == ()
