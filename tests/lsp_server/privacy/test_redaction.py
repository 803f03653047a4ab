import pytest

from benchmarks.corpora.held_out_text import find_text
from benchmarks.corpora.private_files import Secret, count_secret_bytes, iter_secrets
from lsp_server.privacy.redaction import PLACEHOLDER, Redactor
from models.training.corpus import iter_held_out

_KEY = next(secret for secret in iter_secrets() if secret.form == "RSA key block")


@pytest.fixture(scope="module")
def redactor() -> Redactor:
    return Redactor()


@pytest.mark.parametrize("secret", list(iter_secrets()), ids=lambda secret: secret.form)
def test_a_known_form_is_replaced_and_the_code_around_it_stays(secret: Secret, redactor: Redactor) -> None:
    text = redactor.redact(f"import os\n{secret.text}value = 1\n")
    assert count_secret_bytes([text], [secret.secret], min_chars=4) == 0
    assert text.startswith("import os\n")
    assert text.endswith("value = 1\n")
    assert text.count('"') == secret.text.count('"') or "key in strings" in secret.form


def test_the_replacement_says_nothing_of_the_secret(redactor: Redactor) -> None:
    short, long = (f'password = "{"x7" * number}"' for number in (4, 40))
    assert redactor.redact(short) == redactor.redact(long) == f'password = "{PLACEHOLDER}"'


def test_a_key_block_without_an_end_goes_as_far_as_it_looks_like_one(redactor: Redactor) -> None:
    block = _KEY.text.partition("-----END")[0]
    text = redactor.redact(f"{block}\ndef f():\n    return 1\n")
    assert text == f'key = """{PLACEHOLDER}\n\ndef f():\n    return 1\n'


def test_a_key_block_with_other_lines_in_it_is_replaced_up_to_its_end(redactor: Redactor) -> None:
    begin, *body, end, quotes, _ = _KEY.text.split("\n")
    text = redactor.redact("\n".join([begin, body[0], "a remark: (the next lines ...)", *body, end, quotes]))
    assert text == f'key = """{PLACEHOLDER}\n"""'


def test_code_between_the_names_of_the_lines_stays(redactor: Redactor) -> None:
    lines = [f'if line == "-----{word} PRIVATE KEY-----":\n    found = True\n' for word in ("BEGIN", "END")]
    text = redactor.redact("".join(lines))
    assert text.count("found = True") == 2


def test_ordinary_code_stays_as_it_is(redactor: Redactor) -> None:
    changed = [file.path for file in iter_held_out() if redactor.redact(file.text) != file.text]
    assert changed == []


def test_a_secret_in_a_very_long_line_is_found(redactor: Redactor) -> None:
    code = find_text(10_000).decode().replace("\n", " ")
    token = next(secret for secret in iter_secrets() if secret.form == "GitHub").secret
    for at in (0, 1023, 1024, 2040, 2048, 9_999):
        assert redactor.redact(f"{code[:at]} {token} {code[at:]}") == f"{code[:at]} {PLACEHOLDER} {code[at:]}"
