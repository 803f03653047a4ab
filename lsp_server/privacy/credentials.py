"""Names of files that hold credentials, whatever else is in their folder.

The names are those that programs give such files by themselves, or that people give to nothing else. `keys.py`,
`secrets.py` or `credentials/models.py` are code and stay.
"""

from functools import cache

from lsp_server.privacy.patterns import RuleList, parse_patterns

_PASSWORDS = """
    .env* credentials* secrets.json secrets.toml secrets.yaml secrets.yml
    .netrc _netrc .npmrc .pypirc .pgpass .my.cnf .htpasswd .git-credentials .dockercfg .s3cfg .boto .vault-token
    .databrickscfg .terraformrc *.tfvars *.tfstate client_secret*.json service-account*.json service_account*.json
    .aws/ .azure/ .kube/ .docker/config.json .config/gcloud/ .config/gh/ .config/pypoetry/auth.toml .git/config
    .*_history *.kdb *.kdbx .password-store/ *.ovpn
"""
_KEYS = """
    .ssh/ .gnupg/ id_rsa* id_dsa* id_ecdsa* id_ed25519*
    *.pem *.key *.p8 *.p12 *.pfx *.ppk *.jks *.keystore
"""
# Files with these endings are code or text about credentials.
_CODE = (
    *("c", "cc", "cpp", "cs", "css", "go", "h", "hpp", "html", "java", "js", "jsx", "kt", "lua", "md", "php", "proto"),
    *("py", "pyi", "pyx", "rb", "rs", "rst", "scala", "swift", "ts", "tsx", "vue"),
)
_CODE_NAMES = ("credentials", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519")


@cache
def build_credential_rules() -> RuleList:
    """Returns the list. It is written in lower case, and is to be compared with paths in lower case."""
    anywhere = [name if "/" not in name.rstrip("/") else f"**/{name}" for name in (_PASSWORDS + _KEYS).split()]
    code = [f"!{name}*.{ending}" for name in _CODE_NAMES for ending in _CODE]
    folders = [f"!{name}*/" for name in _CODE_NAMES]
    return RuleList("credentials", "/", parse_patterns([*anywhere, *code, *folders]))
