import argparse

import pytest

from midtoken.server_arguments import add_connection_arguments, build_connection_arguments, may_be_remote
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
        (("--model=-a model", "--device=cuda", "--dtype=int8", "--threads=3"), False),
        (("--triton-binary=/bin/t", "--model-repository=/r", "--state-dir=/s"), False),
    ],
)
def test_another_process_gets_the_same_options(arguments: tuple[str, ...], is_remote: bool) -> None:
    options = parse_options(add_connection_arguments, *arguments)
    assert may_be_remote(options) == is_remote
    assert parse_options(add_connection_arguments, *build_connection_arguments(options)) == options


def test_every_argument_is_passed_on() -> None:
    options = argparse.Namespace(**dict.fromkeys(vars(parse_options(add_connection_arguments)), "x"))
    assert len(build_connection_arguments(options)) == len(vars(options))
