import argparse

import pytest

from midtoken.server_arguments import add_connection_arguments, build_connection_arguments
from tests.support.options import parse_options


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--server=127.0.0.1:8001",),
        ("--server=example.org:8001", "--tls", "--tls-ca=/ca.pem"),
        ("--server=example.org:8001", "--insecure"),
        ("--model=-a model", "--device=cuda", "--dtype=int8", "--threads=3"),
        ("--triton-binary=/bin/t", "--model-repository=/r", "--state-dir=/s"),
    ],
)
def test_another_process_gets_the_same_options(arguments: tuple[str, ...]) -> None:
    options = parse_options(add_connection_arguments, *arguments)
    assert parse_options(add_connection_arguments, *build_connection_arguments(options)) == options


def test_every_argument_is_passed_on() -> None:
    options = argparse.Namespace(**dict.fromkeys(vars(parse_options(add_connection_arguments)), "x"))
    assert len(build_connection_arguments(options)) == len(vars(options))
