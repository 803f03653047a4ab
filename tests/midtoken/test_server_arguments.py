import pytest

from midtoken.server_arguments import add_connection_arguments, may_be_remote
from tests.support.options import parse_options


@pytest.mark.parametrize(
    ("arguments", "is_remote"),
    [
        ((), False),
        (("--server=127.0.0.1:8001",), False),
        (("--server=grpcs://example.org:8001",), True),
        (("--server=example.org:8001", "--tls"), True),
        (("--server=example.org:8001", "--tls-ca=/ca.pem"), True),
        (("--server=example.org:8001", "--insecure"), True),
        (("--model=-a model",), False),
        (("--engine=http://127.0.0.1:8080",), False),
        (("--engine=https://example.org",), True),
        (("--engine=http://127.0.0.1:8080, https://example.org",), True),
    ],
)
def test_a_server_that_may_be_on_another_machine_is_known_by_its_options(
    arguments: tuple[str, ...], is_remote: bool
) -> None:
    assert may_be_remote(parse_options(add_connection_arguments, *arguments)) == is_remote
