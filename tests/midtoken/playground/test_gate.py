from collections.abc import Mapping

import pytest

from midtoken.playground.gate import Gate

_GATE = Gate(8799, "secret-token")
_HOST = "127.0.0.1:8799"


def _ask(path: str, headers: Mapping[str, str], *, needs_origin: bool = False) -> str | None:
    return _GATE.find_refusal(path, headers, needs_origin=needs_origin)


@pytest.mark.parametrize("host", [_HOST, "localhost:8799"])
def test_the_pages_own_requests_are_answered(host: str) -> None:
    assert _ask("/secret-token/", {"Host": host}) is None
    assert _ask("/secret-token/lsp", {"Host": host, "Origin": f"http://{host}"}, needs_origin=True) is None


@pytest.mark.parametrize(
    "path", ["/", "", "/secret-token", "/secret-toke/", "/secret-token2/", "/wrong/secret-token/", "/%73ecret-token/"]
)
def test_an_address_without_the_token_is_refused(path: str) -> None:
    assert "no valid token" in str(_ask(path, {"Host": _HOST}))


def test_a_token_of_any_bytes_is_compared() -> None:
    assert "no valid token" in str(_ask("/sécret\udcff/", {"Host": _HOST}))


@pytest.mark.parametrize("host", ["evil.example:8799", "127.0.0.1:8800", "127.0.0.1", "[::1]:8799", ""])
def test_another_host_is_refused_even_with_the_token(host: str) -> None:
    assert "answers only at" in str(_ask("/secret-token/", {"Host": host}))


def test_a_request_without_a_host_is_refused() -> None:
    assert "answers only at" in str(_ask("/secret-token/", {}))


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "https://127.0.0.1:8799", "http://127.0.0.1:8800", "http://localhost:8799", "null"],
)
def test_another_origin_is_refused_even_with_the_token(origin: str) -> None:
    assert "not another site" in str(_ask("/secret-token/lsp", {"Host": _HOST, "Origin": origin}))


def test_a_websocket_without_an_origin_is_refused() -> None:
    assert "only for its own page" in str(_ask("/secret-token/lsp", {"Host": _HOST}, needs_origin=True))


def test_each_playground_has_a_token_of_its_own() -> None:
    gates = [Gate.create(8799) for _ in range(10)]
    assert len({gate.token for gate in gates}) == 10
    assert all(len(gate.token) >= 32 for gate in gates)


def test_the_address_has_the_token() -> None:
    assert _GATE.url == "http://127.0.0.1:8799/secret-token/"
