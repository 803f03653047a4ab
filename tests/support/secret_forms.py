"""Secrets in files that may leave the machine, from the documentation of services. No secret here was ever valid.

Secrets are built from parts, so that no scanner of this repository finds them.
"""

import base64
import json
import random
import re
import string
from collections.abc import Sequence
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


# One form a line. UUID stands for a random one. What is before a bar is not secret.
_TOKENS = [
    line.split(": ", 1)
    for line in """
AWS key: AKIA{S16}
AWS temporary key: ASIA{S16}
GitHub: ghp_{A36}
GitHub, longer: gho_{A40}
GitHub, by an app: ghs_{A36}
GitLab: glpat-{W20}
Slack: xoxb-{D12}-{D12}-{A24}
Slack webhook: https://hooks.slack.com/services/|T{U8}/B{U8}/{A24}
Stripe: sk_live_{A24}
OpenAI: sk-{A20}T3BlbkFJ{A20}
SendGrid: SG.{W22}.{W43}
Twilio: SK{H32}
Telegram: {D9}:AA{W33}
Discord: M{A23}.{A6}.{W27}
Mailchimp: {H32}-us12
PyPI: pypi-AgEIcHlwaS5vcmc{W80}
Azure: AccountKey={B86}==
Square: sq0csp-{W43}
Artifactory: AKCp{A69}
GitHub, fine-grained: github_pat_{A22}_{A59}
Anthropic: sk-ant-api03-{W93}AA
Google API: AIza{W35}
Google OAuth: ya29.{W120}
Google OAuth client: GOCSPX-{W28}
Google refresh: 1//0{W80}
Hugging Face: hf_{A34}
Hugging Face, letters: hf_{C34}
Hugging Face organization: api_org_{A34}
GitLab registration: GR1348941{W20}
Vault: hvs.{W90}
Vault batch: hvb.{W140}
Docker: dckr_pat_{W27}
Docker organization: dckr_oat_{W32}
npm: npm_{A36}
Grafana: glsa_{A32}_{H8}
Grafana Cloud: glc_eyJ{A60}
DigitalOcean: dop_v1_{H64}
DigitalOcean OAuth: doo_v1_{H64}
DigitalOcean refresh: dor_v1_{H64}
Shopify: shpat_{H32}
Shopify custom: shpca_{H32}
Shopify secret: shpss_{H32}
Shopify private: shppa_{H32}
Stripe webhook: whsec_{A32}
Stripe restricted: rk_live_{A24}
Stripe test: sk_test_{A24}
OpenAI project: sk-proj-{W74}T3BlbkFJ{W74}
OpenAI service: sk-svcacct-{W74}T3BlbkFJ{W74}
Anthropic admin: sk-ant-admin01-{W93}AA
AWS Bedrock: ABSK{A109}+{A19}=
Azure Entra: abc8Q~{A34}
Slack app: xapp-1-A{U10}-{D13}-{H64}
Slack user: xoxp-{D12}-{D12}-{D12}-{H32}
Slack refresh: xoxe.xoxp-1-{A160}
Slack workflow: https://hooks.slack.com/workflows/|T{U8}/A{U9}/{D18}/{A24}
GitLab deploy: gldt-{W20}
GitLab runner: glrt-{W20}
GitLab trigger: glptt-{H40}
GitLab feed: glft-{W20}
GitLab agent: glagent-{W50}
GitLab job: glcbt-1_{W20}
GitLab SCIM: glsoat-{W20}
GitLab mail: glimt-{W25}
GitLab OAuth: gloas-{W64}
Mailgun: key-{H32}
Heroku: HRKU-AA{W58}
Databricks: dapi{H32}
Doppler: dp.pt.{A43}
Doppler service: dp.st.prd.{A43}
Dropbox: sl.B{W130}
Fly.io: fm2_{B200}
Linear: lin_api_{A40}
Notion: ntn_{A46}
Notion, older: secret_{A43}
New Relic: NRAK-{U27}
PlanetScale: pscale_tkn_{W43}
PlanetScale password: pscale_pw_{W43}
Postman: PMAK-{H24}-{H34}
Pulumi: pul-{H40}
RubyGems: rubygems_{H48}
Sentry: sntryu_{H64}
Sentry organization: sntrys_eyJ{A80}_{A43}
Sourcegraph: sgp_{H16}_{H40}
Square access: EAAA{W60}
Tailscale: tskey-auth-{A17}-{A32}
Terraform: {A14}.atlasv1.{W67}
Typeform: tfp_{A44}_{A14}
Atlassian: ATATT3xFfGF0{W180}
Bitbucket: ATBB{A32}
Bitbucket repository: ATCTT3xFfGN0{W180}
Bitbucket server: BBDC-{B44}
age: AGE-SECRET-KEY-1{U58}
Airtable: pat{A14}.{H64}
Alibaba: LTAI5t{A18}
CircleCI: CCIPAT_{A22}_{H40}
Cloudflare origin: v1.0-{H24}-{H146}
Facebook: EAAG{A120}
Figma: figd_{W40}
Groq: gsk_{A52}
xAI: xai-{A80}
OpenRouter: sk-or-v1-{H64}
Perplexity: pplx-{A48}
Replicate: r8_{A37}
Tavily: tvly-dev-{A32}
Supabase: sbp_{H40}
Supabase secret: sb_secret_|{W31}
Vercel: vcp_{A56}
Netlify: nfp_{A36}
PostHog: phx_{A43}
Pinecone: pcsk_{A6}_{A60}
LangSmith: lsv2_pt_{H32}_{H10}
Dynatrace: dt0c01.{U24}.{U64}
Contentful: CFPAT-{W43}
Clojars: CLOJARS_{H60}
NuGet: oy2{L43}
Prefect: pnu_{A36}
ReadMe: rdme_{L70}
Scalingo: tk-us-{W48}
Shippo: shippo_live_{H40}
EasyPost: EZAK{A54}
Duffel: duffel_live_{W43}
Flutterwave: FLWSECK-{H32}-X
Brevo: xkeysib-{H64}-{A16}
Mapbox: sk.eyJ{A80}.{W22}
Riot: RGAPI-UUID
Nylas: nyk_v0_{A64}
Octopus: API-{U32}
OpenShift: sha256~{W43}
PASETO: v2.local.{W100}
Docker Swarm: SWMTKN-1-{L50}-{L25}
Docker Swarm unlock: SWMKEY-1-{B43}
NATS: SUA{S55}
WakaTime: waka_UUID
Resend: re_{A8}_{A24}
Plaid: access-production-UUID
PayPal Braintree: access_token$production$|{L16}${H32}
Trello: ATTA{H64}
Buildkite: bkua_{H40}
1Password: ops_eyJ{W250}
Deno: ddp_{A36}
Render: rnd_{A28}
SonarQube: squ_{H40}
NVIDIA: nvapi-{W64}
Cerebras: csk-{L48}
ElevenLabs: sk_{H48}
Langfuse: sk-lf-UUID
Jina: jina_{A60}
Firecrawl: fc-{H32}
Apify: apify_api_{A36}
Together: tgp_v1_{W43}
Fireworks: fw_{A22}
DeepSeek: sk-{H32}
Discord webhook: https://discord.com/api/webhooks/|{D18}/{W68}
Teams webhook: https://me.webhook.office.com/webhookb2/|UUID@UUID/IncomingWebhook/{H32}/UUID
key in base64: LS0tLS1CRUdJTiB{A200}
Doppler CLI: dp.ct.{A43}
Rollbar: post_server_item_{H32}
Snyk: snyk_uat.{A8}.{W60}
Axiom: xaat-UUID
Honeycomb: hcaik_{L58}
Stytch: secret-live-{W36}=
Lob: live_{H35}
Harness: pat.{A22}.{H24}.{A20}
""".strip().split("\n")
]

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

# Lines that say something of secrets and contain none.
HARMLESS = fill(
    """\
password = get_password()
token = None
api_key: str
secret_key=settings.SECRET_KEY
password: ${DB_PASSWORD}
password = os.environ["DB_PASSWORD"]
password = os.getenv("DB_PASSWORD", "")
password = getpass.getpass("Password: ")
self.password = password
def login(user: str, password: str = "") -> None:
    password: str | None = None
if password is None: return
if not token: raise ValueError("a token is missing")
token = tokens[index + 1]
for token in self.tokens: yield token
f(password=password, token=self.token, key=key)
url = f"postgres://{user}:{password}@{host}/x"
url = "postgres://%s:%s@%s" % (user, password, host)
url = "http://localhost:8080/a@b"
headers = {"Authorization": f"Bearer {token}"}
headers = {"Authorization": "Bearer " + token}
password: {{ vault_password }}
password = "<password>"
password = "********"
password = "${DB_PASSWORD}"
password = "%(password)s"
CONF_PASSWORD = "password"
AUTH_TOKEN = "auth_token"
token_type = "bearer"
PASSWORD_FIELD = "user_password_2"
SECRET_FILE = "/run/secrets/db_1"
secret_name = "prod/db-1"
token = "NAME"
key = "value"
keys = ["alpha", "beta2"]
password_help = "Use at least 8 characters"
"password": "The password of the user, at least 8 characters"
:param password: the password to use
    token: The token that is sent, 40 characters
type Password = string;
password: string;
const { password, token } = req.body;
password: user.password,
String password = request.getParameter("password");
var token = await getToken(id);
apiKey: process.env.API_KEY,
passes = 1000
password = data["password"]
password = config.get("db_password")
token = request.headers.get("X-Auth-Token")
f(user="me", password=password_2)
psycopg2.connect(f"user={user} password={password}")
tokenizer = AutoTokenizer.from_pretrained("gpt2")
import secrets, tokenize
sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
image = "https://example.com/a/b/c.png?width=200&key=name"
author = "Jane Doe <jane@example.com>"
git clone https://github.com/me/project.git
uuid = "123e4567-e89b-12d3-a456-426614174000"
class PasswordResetTokenGenerator2(Base):
assertEqual(password, expected_password1)
"integrity": "sha512-{B86}=="
""",
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
