"""Patterns in the syntax of .gitignore: the files that have them, and the names of files that hold credentials.

The names are those that programs give such files by themselves, or that people give to nothing else. `keys.py`,
`secrets.py` or `credentials/models.py` are code and stay.
"""

import os
import re
import stat
from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import product
from typing import Any, NamedTuple

import re2
from pathspec.patterns.gitignore import GitIgnorePatternError
from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern


class UnreadableRulesError(Exception):
    """Rules cannot be read, so nobody knows what they exclude. The message says which and why."""


class Rule(NamedTuple):
    """A line with a pattern."""

    line: int  # from 1
    text: str
    excludes: bool
    expression: str  # matches a path itself, not what is in a folder that it matches


class IgnoreRules:
    """The rules of one source, in the syntax of .gitignore. Of those that match a path, the last one decides about it.

    pathspec knows the syntax. It judges a path as a whole, though: by `/private/` and then `!*.md` it would include a
    file in that folder. So the patterns are applied as Git applies them, from the outermost folder on: nothing in an
    excluded folder is included again. They are matched by RE2, whose time grows with the length of the path alone.

    A path is also excluded if it would be where case does not count, since a disk may show it under both names.
    """

    def __init__(self, lines: Sequence[str]) -> None:
        """Raises UnreadableRulesError for a pattern that has no expression, such as `[[:alpha:]]`."""
        self._last_first: list[Rule] = []
        self.useless: list[str] = []  # that can match nothing
        for number, line in enumerate(lines, 1):
            if "[[:" in line:
                raise UnreadableRulesError(f"{show(line)} has a named set, which is not supported")
            try:
                # pathspec forgets that the former is for folders.
                pattern = GitIgnoreSpecPattern(re.sub(r"/\*\*/$", "/**/*/", line.removesuffix("\r")))
            except GitIgnorePatternError:
                pattern = None
            except re.error as error:
                raise UnreadableRulesError(f"{show(line)} is no pattern: {error}") from None
            if pattern is not None and pattern.regex is not None:
                found = pattern.regex.pattern.replace("(?:(?P<ps_d>/)|$)", "/?$").replace("(?P<ps_d>/)", "/$")
                found += "." * found.endswith("/")  # `a/**` does not match the folder itself
                self._last_first.insert(0, Rule(number, line, bool(pattern.include), found))
            elif line.strip() and line[0] != "#":
                self.useless.append(line)
        # Tell whether any matches, so that thousands cost little.
        self._any = "|".join(rule.expression for rule in self._last_first) or r"[^\s\S]"
        _compile(self._any, ignores_case=True)

    def find(self, path: str) -> Rule | None:
        """Returns the rule that excludes a path, which is relative to the folder of the rules."""
        path = os.fsencode(path).decode("utf-8", "replace")
        starts = [path[: match.end()] for match in re.finditer("/|.$", path, re.DOTALL)]
        for ignores_case, start in product((False, True), starts):
            if _compile(self._any, ignores_case).search(start) is not None:
                matching = (each for each in self._last_first if _compile(each.expression, ignores_case).search(start))
                if (deciding := next(matching)).excludes:
                    return deciding
        return None


@lru_cache(4096)
def _compile(expression: str, ignores_case: bool) -> Any:
    options = re2.Options()
    options.dot_nl, options.log_errors, options.max_mem = True, False, 2**26  # a list may have thousands of patterns
    options.case_sensitive = not ignores_case
    try:
        return re2.compile(expression, options)
    except re2.error:
        raise UnreadableRulesError("its patterns are too long") from None


_MAX_BYTES = 10 * 2**20  # of an ignore file
_MAX_SHOWN = 60  # characters of a pattern


def find_rule(path: str, top: str, names: Sequence[str]) -> str | None:
    """Returns the rule that excludes a path, in the files of these names in its folder and above, up to `top`.

    Raises UnreadableRulesError.
    """
    for folder in list_folders(path, top):
        for name in names:
            rules = _read_file(os.path.join(folder, name))
            rule = rules and rules.find(path[len(folder) :].lstrip("/"))
            if rule:
                return f"`{os.path.basename(name)}` line {rule.line}: {show(rule.text)}"
    return None


def _read_file(path: str) -> IgnoreRules | None:
    """Returns the rules of an ignore file; None if there is no such file. Raises UnreadableRulesError."""
    try:
        status = os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            return None
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_BYTES:
            raise UnreadableRulesError(f"it is not a file of at most {_MAX_BYTES // 2**20} MiB")
        return _load(path, (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnreadableRulesError) as error:
        raise UnreadableRulesError(f"`{path}` cannot be read: {getattr(error, 'strerror', error)}") from None


@lru_cache(1000)
def _load(path: str, _stamp: tuple[int, ...]) -> IgnoreRules:
    with open(path, encoding="utf-8-sig", errors="replace", newline="") as file:
        return IgnoreRules(file.read().split("\n"))


def list_folders(path: str, top: str = "/") -> list[str]:
    """Returns the folders that a path is in, up to `top`, the innermost first."""
    folders = [os.path.dirname(path)]
    while folders[-1] not in (top, "/", ""):
        folders.append(os.path.dirname(folders[-1]))
    return folders


def show(pattern: str) -> str:
    """Returns a pattern as one printable word."""
    shown = "".join(char if char.isprintable() else "?" for char in pattern)
    return f"`{shown if len(shown) <= _MAX_SHOWN else shown[: _MAX_SHOWN - 3] + '...'}`"


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


@cache
def _build_credential_rules() -> IgnoreRules:
    names = (_PASSWORDS + _KEYS).split()
    spelled = [name.replace("DATA", ending) for name in names for ending in (_DATA if "DATA" in name else [""])]
    anywhere = [name if "/" not in name.rstrip("/") else f"**/{name.removeprefix('**/')}" for name in spelled]
    code = [f"!{name}*.{ending}" for name in _CODE_NAMES for ending in _CODE]
    folders = [f"!{name}/" for name in (*(f"{name}*" for name in _CODE_NAMES), *_CODE_FOLDERS)]
    return IgnoreRules([*anywhere, *code, *folders])


def find_credential_pattern(path: str) -> str | None:
    """Returns the pattern of a path with credentials, or of a copy of one; None if it is neither."""
    parts = [_COPY_ENDING.sub("", _COPY_MIDDLE.sub("", name)) or name for name in path.lower().split("/")]
    copies = ("/".join([*parts[:-1], parts[-1].removeprefix(mark)]) for mark in _COPY_BEGINNINGS)
    paths = [each.lstrip("/") for each in dict.fromkeys([path.lower(), *copies]) if not each.endswith("/")]
    rule = next(filter(None, map(_build_credential_rules().find, paths)), None)
    return None if rule is None else rule.text
