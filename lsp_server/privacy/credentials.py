"""Names of files that hold credentials, whatever else is in their folder.

The names are those that programs give such files by themselves, or that people give to nothing else. `keys.py`,
`secrets.py` or `credentials/models.py` are code and stay.
"""

import re
from functools import cache

from lsp_server.privacy.ignore_rules import IgnoreRules

_PASSWORDS = """
    *.env *.env.* .env* .flaskenv
    env.local* env.dev* env.prod* env.stag* env.test* env.live* env.qa* env.uat* env.ci env.docker* env.private*
    credentials* *credentials.DATA *[-_.]credentials creds creds.DATA *[-_.]creds *[-_.]creds.DATA
    token *[-_]token *.token token.txt *[-_.]token.txt *.jwt cookies.txt .erlang.cookie local.settings.json
    .secret .secrets .secrets.* *.secret *.secrets secret.DATA secrets.DATA
    secret[-_.]*.DATA secrets[-_.]*.DATA *[-_.]secret.DATA *[-_.]secrets.DATA **/run/secrets/ *-secrets
    **/secrets/*.DATA *[-_.]password.txt *[-_.]passwords.DATA *.passwd sasl_passwd* **/proc/*/environ
    pass.?*/ gopass*-edit*/ kubectl-edit-*.yaml *.publishsettings .config/github-copilot/
    *[-_]password *[-_]passwd *_token_cache.json accesstokens.json recovery[-_]codes* *[-_]recovery[-_]codes*
    mnemonic.txt .netrc[-_]* .pgpass[-_]* *.htpasswd .dev.vars* .renviron .curlrc .wgetrc .sentryclirc ngrok.yml
    logins.csv password.DATA passwords.DATA passwords passwd.DATA
    apikey.DATA api[-_]key.DATA apikeys.DATA api[-_]keys.DATA
    .netrc _netrc .authinfo .npmrc .yarnrc.yml .pypirc pip.conf pip.ini nuget.config auth.json .git-credentials
    .git/config .m2/settings*.xml .gradle/gradle.properties .config/pypoetry/auth.toml .config/gh/ .config/hub
    .config/glab-cli/
    .htpasswd htpasswd .pgpass pgpass.conf .pg_service.conf .my.cnf .mylogin.cnf database.yml **/etc/shadow*
    **/etc/gshadow* wp-config.php .smbcredentials wpa_supplicant*.conf *.nmconnection *.ovpn **/wireguard/*.conf
    wg[0-9]*.conf wg-*.conf
    .msmtprc .fetchmailrc .muttrc .esmtprc .ftpconfig sftp.json sftp-config.json filezilla.xml sitemanager.xml
    recentservers.xml webservers.xml datasources.local.xml .subversion/auth/
    .aws/ .azure/ .oci/ .s3cfg .boto .config/gcloud/ .config/rclone/ rclone.conf .config/doctl/ .config/heroku/
    .databrickscfg .snowsql/ .dbt/ .vercel/ .netlify/ .fly/ client_secret*.json token.json *service[-_]account*.json
    *serviceaccount*.json *firebase-adminsdk*.json google-services.json googleservice-info.plist gcp*key*.json
    gcloud*key*.json key.json keyfile.json .kaggle/ kaggle.json huggingface/token .huggingface/token
    .dockercfg .dockerconfigjson .docker/config.json .kube/ kubeconfig* *[-_.]kubeconfig *[-_.]kubeconfig.DATA
    **/etc/kubernetes/*.conf k3s.yaml talosconfig
    .terraformrc terraform.rc *.tfrc.json *.tfvars *.tfvars.json *.tfstate *.tfstate.* .pulumi/
    .vault-token .vault[-_]pass* vault[-_]pass* .vaultpass* .ansible[-_]vault* vault.yml vault.yaml
    *_history .histfile .zhistory consolehost_history.txt dump.sql *[-_.]dump.sql backup.sql *[-_.]backup.sql
    *.kdb *.kdbx *.psafe3 *.agilekeychain/ *.opvault/ .password-store/ logins.json wallet.dat *.1pif
"""
_KEYS = """
    .ssh/ .gnupg/ id_rsa* id_dsa* id_ecdsa* id_ed25519* ssh_host_*_key* *[-_]rsa *[-_]dsa *[-_]ecdsa *[-_]ed25519
    *.pem *.key *.p8 *.p12 *.pfx *.pkcs12 *.ppk *.pvk *.jks *.jceks *.bks *.keystore *.keytab krb5cc_* *.agekey
    *.keychain *.keychain-db
    *[-_]key *[-_]keys deploykey* *[-_]key.txt *[-_]keys.txt *[-_]keys.csv *accesskey*.csv rootkey*.csv !*public[-_]key
    .config/sops/ keystore.properties key.properties signing.properties *private[-_]key* *privatekey* privkey*
    secring.* *.mobileprovision
"""
_DATA = ("json", "json5", "toml", "yaml", "yml", "ini", "cfg", "conf", "properties", "xml", "txt", "csv", "plist")
# Files with these endings are code or text about credentials, and so are folders with these names.
_CODE = (
    *("c", "cc", "cpp", "cs", "css", "go", "h", "hpp", "html", "java", "js", "jsx", "kt", "lua", "md", "php", "proto"),
    *("py", "pyi", "pyx", "rb", "rs", "rst", "scala", "swift", "ts", "tsx", "vue"),
)
_CODE_NAMES = (
    *("credentials", "env.", "deploykey", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "kubeconfig", "privkey"),
    *("recovery[-_]codes", "*[-_]recovery[-_]codes"),
    *("ssh_host_*_key", "?*.env", "*private[-_]key", "*privatekey", "vault[-_]pass"),
)
_CODE_FOLDERS = (
    *("*.env", "*[-_.]kubeconfig", "passwords", "*_history", "*-secrets", "token", "*[-_]token", "*.token"),
    *("*[-_]password", "*[-_]passwd", "creds", "*[-_.]creds", "*[-_.]credentials", "*[-_]key", "*[-_]keys"),
    *("*[-_]rsa", "*[-_]dsa", "*[-_]ecdsa", "*[-_]ed25519"),
)
# What editors and people add to the name of a copy: before the ending, at the end and at the beginning.
_COPY_MIDDLE = re.compile(r"( ?\(\d+\)|( -)?[-_ ]copy( \d+)?)(?=\.\w+$)")
_COPY_ENDING = re.compile(
    r"([-_. ](bak|backup|old|orig|original|saved?|copy|prev|previous|te?mp|rej|dist|disabled|off|new|sw[a-p]|"
    r"ba[ck]?\d+|\d{1,14}|~\d+~|\d{4}-\d\d-\d\d.*)| ?\(\d+\)|[~#])+$"
)
_COPY_BEGINNINGS = ("", "#", ".#", ".")


def find_credential_pattern(path: str) -> str | None:
    """Returns the pattern of a path with credentials, or of a copy of one; None if it is neither."""
    folder, _, name = "/".join(map(_strip_copy, path.lower().split("/"))).rpartition("/")
    paths = dict.fromkeys([path.lower(), *(f"{folder}/{name.removeprefix(mark)}" for mark in _COPY_BEGINNINGS)])
    found = (_build_rules().find(each.lstrip("/")) for each in paths if not each.endswith("/"))
    return next((rule.text for rule in found if rule is not None), None)


def _strip_copy(name: str) -> str:
    return _COPY_ENDING.sub("", _COPY_MIDDLE.sub("", name)) or name


@cache
def _build_rules() -> IgnoreRules:
    names = (_PASSWORDS + _KEYS).split()
    spelled = [name.replace("DATA", ending) for name in names for ending in (_DATA if "DATA" in name else [""])]
    anywhere = [name if "/" not in name.rstrip("/") else f"**/{name.removeprefix('**/')}" for name in spelled]
    code = [f"!{name}*.{ending}" for name in _CODE_NAMES for ending in _CODE]
    folders = [f"!{name}/" for name in (*(f"{name}*" for name in _CODE_NAMES), *_CODE_FOLDERS)]
    return IgnoreRules([*anywhere, *code, *folders])
