"""The forms of secrets that SECURITY.md promises to replace. No secret here was ever valid.

Secrets are built from parts, so that no scanner of this repository finds them.
"""

import base64
import json
import random
import re
import string
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


class Secret(NamedTuple):
    """A form of secret, and a line or block of text that contains it where the template has •."""

    form: str
    secret: str
    template: str = 'x = "•"\n'

    @property
    def text(self) -> str:
        """The source text."""
        return self.template.replace("•", self.secret)


_ALPHABETS = {
    "D": string.digits,
    "H": "0123456789abcdef",
    "L": string.ascii_lowercase + string.digits,
    "S": string.ascii_uppercase + "234567",
    "U": string.ascii_uppercase + string.digits,
    "A": string.ascii_letters + string.digits,
    "W": string.ascii_letters + string.digits + "-_",
    "B": string.ascii_letters + string.digits + "+/",
}


def _fill(notation: str, seed: str) -> str:
    """Returns the notation with each `{A36}` replaced by that many characters of an alphabet, always the same."""
    rng = random.Random(seed)

    def draw(match: "re.Match[str]") -> str:
        return "".join(rng.choices(_ALPHABETS[match[1]], k=int(match[2])))

    return re.sub(r"\{([A-Z])(\d+)\}", draw, notation)


_KEY_BODY = "\n".join([_fill("{B64}", str(number)) for number in range(6)] + ["Tn8Vb3Yc6Hd1Jf5Gs0Pa=="])
_BEGIN, _END = (f"-----{word} ENCRYPTED " + "PRIVATE " + "KEY-----" for word in ("BEGIN", "END"))
_LONG_BODY = "\n".join(_fill("{B64}", str(number)) for number in range(700))
_PUTTY_BEGIN = "PuTTY-User-Key-File-3: ssh-rsa\nEncryption: none\nComment: me\nPrivate-Lines: 7"


def _build_web_token() -> str:
    parts = ({"alg": "HS256", "typ": "JWT"}, {"sub": "1234567890", "name": _fill("{A30}", "JWT")})
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
    return ".".join([*encoded, _fill("{W43}", "JWT")])


def _build_key_block(kind: str) -> Secret:
    begin, end = (f"-----{word} {kind}" + "PRIVATE " + "KEY-----" for word in ("BEGIN", "END"))
    return Secret(f"{kind}key block", _KEY_BODY, f'key = """{begin}\n•\n{end}\n"""\n')


def _read(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


# Values beside names. ⏎ is a line end.
_ASSIGNED = """
password = "•"
SECRET_KEY: str = "•"
options = {"password": "•"}
password = f"•"
password = b"•"
password = r'•'
password = \"""•\"""
password = (⏎    "•"⏎)
{⏎  "password":⏎    "•"⏎}
x = os.environ.get("API_TOKEN", "•")
x = env("SECRET_KEY", default="•")
os.environ["DB_PASSWORD"] = "•"
x = connect("db", user="me", password="•")
def f(host, password="•"):
if password == "•":
self._api_key = "•"
passwords = ["•"]
password: SecretStr = SecretStr("•")
p.add_argument("--password", default="•")
password: str | None = "•"
setattr(x, "password", "•")
client.set_password("•")
const apiKey = '•';
const password: string = "•";
const password = `•`;
password := "•"
String dbPassword = "•";
define('DB_PASSWORD', '•');
'password' => '•',
let client_secret: &str = "•";
DB_PASSWORD=•
export DB_PASSWORD=•
# password: •
password: •
  - password: •
db.password=•
ARG API_TOKEN=•
mysql --password=• db
password=• # of the database
x = "postgres://me:•@db.example.com/x"
x = "Server=db;Uid=me;PWD=•;"
x = "https://example.com/?access_token=•&y=1"
Authorization: Bearer •
headers = {"Authorization": "Bearer •"}
docker run -e DB_PASSWORD=• db
"""


def _read_token(form: str, notation: str) -> Secret:
    """What is before a bar is not secret."""
    beginning, _, rest = notation.rpartition("|")
    return Secret(form, _fill(rest, form), f'x = "{beginning}•"\n')


def _read_assigned(line: str, secret: str) -> Secret:
    return Secret(f"{line} ({secret})", secret, line.replace("⏎", "\n") + "\n")


SECRETS: tuple[Secret, ...] = (
    *(_read_token(*line.split(": ", 1)) for line in _read("secret_tokens.txt").splitlines()),
    Secret("web token", _build_web_token()),
    *(_read_assigned(line, _fill("hq7{A11}", "password")) for line in _ASSIGNED.split("\n") if line),
    *(_read_assigned('password = "•"', secret) for secret in ("hunter2", "gardenfence", "Winter2024!", "s3cr3t!")),
    *map(_build_key_block, ("RSA ", "EC ", "OPENSSH ", "", "ENCRYPTED ", "PGP ")),
    Secret("key in one line", _KEY_BODY.replace("\n", "\\n"), f'key = "{_BEGIN}\\n•\\n{_END}"\n'),
    Secret("key without a first line", _KEY_BODY, f'x = """•\n{_END}\n"""\n'),
    Secret("key without its lines", _KEY_BODY, 'x = """\n•\n"""\n'),
    Secret("key of 700 lines", _LONG_BODY, f"{_BEGIN}\n•\n{_END}\n"),
    Secret("key in a comment", _KEY_BODY.replace("\n", "\n# "), f"# {_BEGIN}\n# •\n# {_END}\n"),
    Secret("PuTTY key", _KEY_BODY, f"{_PUTTY_BEGIN}\n•\nPrivate-MAC: {'0f' * 32}\n"),
)

# Lines that say something of secrets and contain none.
HARMLESS = _fill(_read("harmless_lines.txt"), "harmless").splitlines()


def count_secret_bytes(sent: Sequence[str], secrets: Sequence[str], min_chars: int = 8) -> int:
    """Returns how many bytes of secrets are in the texts: all that `min_chars` of a secret in a row show."""
    num_bytes = 0
    for secret in secrets:
        pieces = {secret[at : at + min_chars] for at in range(max(1, len(secret) - min_chars + 1))}
        pieces = {piece for piece in pieces if "\n" not in piece}
        num_bytes += sum(len(piece.encode()) for piece in pieces for text in sent if piece in text)
    return num_bytes
