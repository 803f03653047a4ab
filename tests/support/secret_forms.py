"""Secrets in files that may leave the machine, from the documentation of services. No secret here was ever valid.

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
    "C": string.ascii_letters,
    "D": string.digits,
    "H": "0123456789abcdef",
    "L": string.ascii_lowercase + string.digits,
    "S": string.ascii_uppercase + "234567",
    "U": string.ascii_uppercase + string.digits,
    "A": string.ascii_letters + string.digits,
    "W": string.ascii_letters + string.digits + "-_",
    "B": string.ascii_letters + string.digits + "+/",
}


def fill(notation: str, seed: str) -> str:
    """Returns the notation with each `{A36}` replaced by that many characters of an alphabet, always the same."""
    rng = random.Random(seed)

    def draw(match: "re.Match[str]") -> str:
        return "".join(rng.choices(_ALPHABETS[match[1]], k=int(match[2])))

    return re.sub(r"\{([A-Z])(\d+)\}", draw, notation)


_BASE64_LINE = fill("MIIEowIBAAKCAQEA{B48}", "line")
_KEY_BODY = "\n".join([fill("{B64}", str(number)) for number in range(6)] + ["Tn8Vb3Yc6Hd1Jf5Gs0Pa=="])
_BEGIN, _END = (f"-----{word} ENCRYPTED " + "PRIVATE " + "KEY-----" for word in ("BEGIN", "END"))
_KEY_STRINGS = "".join(f'    "{line}\\n"\n' for line in [_BEGIN, *_KEY_BODY.splitlines(), _END])
_LONG_BODY = "\n".join(fill("{B64}", str(number)) for number in range(700))
_PUTTY_BEGIN = "PuTTY-User-Key-File-3: ssh-rsa\nEncryption: none\nComment: me\nPrivate-Lines: 7"
_PUTTY_END = "Private-MAC: " + "0f" * 32
_UUID = "{H8}-{H4}-{H4}-{H4}-{H12}"


def _build_web_token(form: str = "JWT") -> str:
    parts = ({"alg": "HS256", "typ": "JWT"}, {"sub": "1234567890", "name": fill("{A30}", form)})
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
    return ".".join([*encoded, fill("{W43}", form)])


def _build_key_block(kind: str) -> Secret:
    begin, end = (f"-----{word} {kind}" + "PRIVATE " + "KEY-----" for word in ("BEGIN", "END"))
    return Secret(f"{kind}key block", _KEY_BODY, f'key = """{begin}\n•\n{end}\n"""\n')


def _read(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


# One form a line. UUID stands for a random one. What is before a bar is not secret.
_TOKENS = [line.split(": ", 1) for line in _read("secret_tokens.txt").splitlines()]

# The names and places of values, where • stands; ⏎ is a line end.
_PASSWORD = fill("hq7{A11}", "password")
_ASSIGNED = """
password = "•"
SECRET_KEY: str = "•"
options = {"password": "•"}
password = f"•"
password = b"•"
password = rb"•"
password = r'•'
password = u"•"
password = \"""•\"""
password = '''⏎•⏎'''
password = (⏎    "•"⏎)
password = \\⏎    "•"
{⏎  "password":⏎    "•"⏎}
password = os.getenv("DB_PASSWORD", "•")
x = os.getenv("DB_PASSWORD", "•")
x = os.environ.get("API_TOKEN", "•")
x = env("SECRET_KEY", default="•")
os.environ["DB_PASSWORD"] = "•"
os.environ.setdefault("DB_PASSWORD", "•")
x = connect("db", user="me", password="•")
def f(host, password="•"):
if password == "•":
password: Final[str] = "•"
self._api_key = "•"
DB_PASSWORD_PROD = "•"
passwords = ["•"]
passwords = ["a", "•"]
password = ("a"⏎    "•")
token = "Bearer •"
password: SecretStr = SecretStr("•")
password: str = Field(default="•")
x = connect("dbname=db user=me password=•")
api_key=os.environ.get("X_API_KEY") or "•"
p.add_argument("--password", default="•")
password: str | None = "•"
requests.get(url, auth=("me", "•"))
auth = HTTPBasicAuth("me", "•")
setattr(x, "password", "•")
client.set_password("•")
client.login(password=b'•')
aws_secret_access_key = "•"
mysqlpwd = "•"
const apiKey = '•';
const password: string = "•";
const password = `•`;
password := "•"
x = process.env.API_KEY || "•";
x = process.env.API_KEY ?? "•";
String dbPassword = "•";
define('DB_PASSWORD', '•');
'password' => '•',
:password => '•'
let client_secret: &str = "•";
x = System.getProperty("db.password", "•");
ALTER USER me WITH PASSWORD '•';
CREATE USER me IDENTIFIED BY '•';
<password>•</password>
<add key="ApiKey" value="•" />
{"name": "DB_PASSWORD", "value": "•"}
DB_PASSWORD=•
export DB_PASSWORD=•
# DB_PASSWORD=•
# password: •
// password = •
password: •
  - password: •
db.password=•
password = •
ENV API_TOKEN •
set DB_PASSWORD=•
ARG API_TOKEN=•
password: >-⏎  •
- name: DB_PASSWORD⏎  value: •
{name: DB_PASSWORD, value: •}
$env:DB_PASSWORD = '•'
mysql --password=• db
x --password • --y
curl -u me:• example.com
machine example.com login me password •
//registry.example.com/:_authToken=•
"password" : "•"
password=• # of the database
  password: '•'
PASSWORD ?= •
x = "postgres://me:•@db.example.com/x"
x = "redis://:•@db.example.com:6379/0"
x = "Server=db;Uid=me;PWD=•;"
x = "Server=db;User Id=me;Password=•;Encrypt=no"
x = "jdbc:mysql://db/x?user=me&password=•"
x = "jdbc:sqlserver://db;user=me;password=•;"
x = "jdbc:oracle:thin:me/•@db:1521:x"
x = "https://example.com/?access_token=•&y=1"
x = "https://example.com/?y=1&api_key=•"
Authorization: Bearer •
Authorization: token •
headers = {"Authorization": "Bearer •"}
headers["Authorization"] = f"token •"
X-Api-Key: •
headers = {"X-Api-Key": "•"}
curl -H 'X-Api-Key: •' example.com
curl -H 'Authorization: Basic •'
Cookie: session=•
Proxy-Authorization: Basic •
curl --user me:• example.com
variable "db_password" {⏎  type    = string⏎  default = "•"⏎}
#define PASSWORD "•"
var password string = "•"
X=${DB_PASSWORD:-•}
docker run -e DB_PASSWORD=• db
password := []byte("•")
<property name="password" value="•"/>
{user: me, password: •}
# the password is •
new NetworkCredential("me", "•");
mysql -u me -p• db
"""

_HARD_PASSWORD = "p:q/7#Rk2+mZx9=4"
_ASSIGNED_HARD = """
password = "•"
DB_PASSWORD=•
password: '•'
x = "postgres://me:•@db.example.com/x"
x = "Server=db;Uid=me;PWD=•;"
"""

_ASSIGNED_WORDS = (  # that a person can remember
    ('password = "•"', "hunter2"),
    ('password = "•"', "letmein"),
    ('password = "•"', "correct horse battery staple"),
    ('password = "•"', "Super77Hidden"),
    ('passwd = "•"', "s3cr3t!"),
    ('pwd = "•"', "Winter2024!"),
    ('SECRET_KEY = "•"', "django-insecure-abc(def)#ghi$jkl%mno"),
    ('password = "•"', 'say \\"77\\" now'),
    ("password: •", "hunter2"),
    ("DB_PASSWORD=•", "hunter"),
    ("password = •", "hunter22"),
    ('x = "redis://:•@db"', "hunter2"),
    ('passphrase = "•"', "wrong donkey accu clip"),
    ('password = f"•{x}"', "hunter2"),
    ("Authorization: Basic •", "dXNlcjpwYXNz"),
    *((line, "gardenfence") for line in _read("secret_neighbours.txt").split("\n")),
    ("+  password: •", "hunter2"),
    ("passwords:⏎  root: x1⏎  bob: •⏎", "hunter2"),
    ("passwords:⏎  - x1⏎  - •⏎", "hunter2"),
    ("[passwords]⏎root = •⏎", "hunter2"),
    ('"command": "curl -u admin:\\"•\\" http://x"', "hq7R2kZp9"),
    ("> password: •", "hunter2"),
    ("set -gx DB_PASSWORD •", "gardenf3nce"),
    ("\ufeffpassword:\u00a0•", "gardenfence12"),
)


def _read_token(form: str, notation: str) -> Secret:
    beginning, _, rest = notation.replace("UUID", _UUID).rpartition("|")
    return Secret(form, fill(rest, form), f'x = "{beginning}•"\n')


def _read_assigned(table: str, secret: str) -> list[Secret]:
    return [Secret(f"{line} ({secret})", secret, line.replace("⏎", "\n") + "\n") for line in table.split("\n") if line]


SECRETS: tuple[Secret, ...] = (
    *(_read_token(form, token) for form, token in _TOKENS),
    Secret("AWS secret", fill("{A36}x/+9", "AWS secret"), 'aws_secret_key = "•"\n'),
    Secret("Azure SAS", fill("{A43}%3D", "Azure SAS"), 'x = "sv=2022-11-02&ss=b&sig=•"\n'),
    Secret("web token", _build_web_token()),
    Secret("web key", fill("{W43}", "web key"), '{"kty": "EC", "crv": "P-256", "d": "•"}\n'),
    Secret("web key of RSA", fill("{W342}", "web key"), '{"kty": "RSA",\n "d": "•",\n "e": "AQAB"}\n'),
    *_read_assigned(_ASSIGNED, _PASSWORD),
    *_read_assigned(_ASSIGNED_HARD, _HARD_PASSWORD),
    *_read_assigned(_read("secret_places.txt"), _PASSWORD),
    *(each for line in _ASSIGNED_WORDS for each in _read_assigned(*line)),
    *map(_build_key_block, ("RSA ", "EC ", "OPENSSH ", "", "ENCRYPTED ", "PGP ")),
    Secret("key in strings", _BASE64_LINE, "key = (\n" + _KEY_STRINGS.replace(_KEY_BODY[:64], "•") + ")\n"),
    Secret("key in one line", _BASE64_LINE, f'key = "{_BEGIN}\\n•\\n{_END}"\n'),
    Secret("key with an edited first line", _KEY_BODY, f'x = """-----BEGIN THE KEY-----\n•\n{_END}\n"""\n'),
    Secret("key without a first line", _KEY_BODY, f'x = """•\n{_END}\n"""\n'),
    Secret("key without its lines", _KEY_BODY, 'x = """\n•\n"""\n'),
    Secret("key of 700 lines", _LONG_BODY, f"{_BEGIN}\n•\n{_END}\n"),
    Secret("key of 700 lines without a first line", _LONG_BODY, f"•\n{_END}\n"),
    Secret("key in a comment", _KEY_BODY.replace("\n", "\n# "), f"# {_BEGIN}\n# •\n# {_END}\n"),
    Secret("PuTTY key", _KEY_BODY, f"{_PUTTY_BEGIN}\n•\n{_PUTTY_END}\n"),
)

LONG = tuple(
    Secret(f"{line} ({len(secret)})", secret, f"{line}\nx = 1\n")
    for line, secret in (
        ('aws_session_token = "•"', fill("{B1200}", "long")),
        ("aws_session_token = •", fill("{B1200}", "long")),
        ("  client-key-data: •", fill("{B1600}", "long")),
        ('private_key = "•"', fill("MIIEvQIBADANBg{B1600}", "long")),
        ("PRIVATE_KEY=•", fill("MIIEvQIBADANBg{B1600}", "long")),
        ('secret = "•"', fill("{H2400}", "long")),
        ('    "tlsKeySecret": "•",', fill("{B1600}", "long")),
        ('password = "•"', "correct horse battery " * 80),
        ('password = """•"""', ("correct horse battery " * 40 + "\n") * 3 + "x"),
        ("password = (" + "1 +" * 122 + ' "•")', fill("{A20}" + "-$" * 600, "long")),
        ('x = "•"', fill("{A12000}", "long")),
    )
)

# Lines that say something of secrets and contain none.
HARMLESS = fill(
    _read("harmless_lines.txt"),
    "harmless",
).splitlines()


def count_secret_bytes(sent: Sequence[str], secrets: Sequence[str], min_chars: int = 8) -> int:
    """Returns how many bytes of secrets are in the texts: all that `min_chars` of a secret in a row show."""
    num_bytes = 0
    for secret in secrets:
        pieces = {secret[at : at + min_chars] for at in range(max(1, len(secret) - min_chars + 1))}
        pieces = {piece for piece in pieces if "\n" not in piece}
        num_bytes += sum(len(piece.encode()) for piece in pieces for text in sent if piece in text)
    return num_bytes
