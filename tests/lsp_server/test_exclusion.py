"""Which documents are excluded, and that nothing is sent while it is not known whether one is."""

import asyncio
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from lsp_server.exclusion import Exclusions, Policy, _iter_spellings, read_uri
from tests.support.lsp_editor import wait_for
from tests.support.private_files import GIT_ENVIRONMENT, run_git


def _find(path: Path, exclude: Sequence[str] = (), folders: Sequence[Path] = (), home: str = "/nowhere") -> str | None:
    policy = Policy(GIT_ENVIRONMENT | {"HOME": home})
    return policy.find_exclusion(path.as_uri(), exclude, [each.as_uri() for each in folders])


# In the order of `lsp_server.ignore_rules`, then copies of such files.
_CREDENTIALS = """
    prod.env docker.env secrets.env prod.env.local .env credentials application_default_credentials.json .secrets.toml
    secret.yaml secrets.prod.yaml db-secret.yml app.secrets.json run/secrets/db chap-secrets passwords.txt api_key.txt
    .netrc .npmrc .git/config .m2/settings.xml .config/gh/hosts.yml .htpasswd .pgpass wp-config.php
    etc/wireguard/wg0.conf sftp-config.json .aws/config .config/gcloud/access_tokens.db serviceAccountKey.json
    my-service-account.json a-firebase-adminsdk-b1.json token.json kaggle.json kubeconfig prod.kubeconfig .kube/config
    kubeconfig-prod.yaml prod.tfvars.json terraform.tfstate.backup terraform.tfstate.1700000000.backup .vault_pass
    vault-password.txt .bash_history fish_history users_dump.sql a.kdbx id_ed25519_sk ssh_host_rsa_key deploy_rsa
    a.keystore key.properties a.keytab private_key.txt privkey1 server.pem.bak .netrc.bak .netrc~ .netrc.swp
    .kaggle.json.swp #.netrc# .#.netrc .netrc.orig .netrc_old .netrc.save .netrc.20240101 .netrc.2024-01-01 .netrc.~1~
    kaggle.json.bak2 kaggle%20(1).json kaggle%20copy.json .ssh.bak/a .pgpass.bak.old KAGGLE.JSON.OLD
    env.prod env.production.local deploy_key aws_credentials accessKeys.csv me_accessKeys.csv rootkey.csv wg0.conf
    token.txt github_token .vault.token db-creds.json ssh-key api_keys.txt session.jwt signing_key.bak
    .dev.vars .dev.vars.production .Renviron .curlrc .wgetrc ngrok.yml .sentryclirc users.htpasswd sasl_passwd
    smtp_password .pgpass-prod .netrc-work msal_token_cache.json accessTokens.json recovery-codes.txt mnemonic.txt
    github-recovery-codes.txt logins.csv wpa_supplicant-wlan0.conf
    my-passwords.txt db_password.txt secrets/db.yaml mosquitto.passwd sasl_passwd.db proc/self/environ
    dev/shm/pass.Ab12Cd34Ef/Xy-github.txt dev/shm/gopass-edit1234/secret tmp/kubectl-edit-123456.yaml
    site.PublishSettings .config/github-copilot/apps.json
"""
_CODE = """
    keys.py credentials.py credentials/a.py env.py id_rsa_key.py environment.py env.d.ts vite-env.d.ts src/app.env.ts
    secrets.py secret.py kubeconfig.go kubeconfig/loader.go update-kubeconfig/a.rst private_key.rs private_keys/a.go
    vault_pass.py passwords/models.py order_history.py order_history/a.py my-secrets/a.py crypto_rsa/lib.rs token.py
    tokens.json environment.yml environments/prod.ts dotenv/main.py main.py~ a.old settings.py data.env/a.py
    env.test.ts env.production.js env/a.py tokens.txt token/a.go csrf_token/a.py foreign_key/a.rb access_keys.py
    public_key monkey hotkeys.txt wgpu.conf
    secrets/store.py pass.py passes/a.txt password_reset_subject.txt reset_password.xml kubectl-edit.go
    recovery_codes.py reset_password/a.ts two_factor_recovery_codes.rb token_cache.go
"""


def _judge(names: str) -> dict[str, str | None]:
    return {name: Policy({}).find_exclusion(f"file:///nowhere/{name.replace('#', '%23')}") for name in names.split()}


def test_files_with_credentials_are_known_by_their_names_and_so_are_copies_of_them() -> None:
    assert [name for name, reason in _judge(_CREDENTIALS).items() if reason is None] == []


def test_code_about_credentials_is_not_excluded() -> None:
    assert {name: reason for name, reason in _judge(_CODE).items() if reason is not None} == {}


@pytest.mark.parametrize(
    ("repositories", "files", "path", "reason"),
    [
        (
            ["project"],
            {".gitconfig": "[core]\nexcludesFile = ~/mine\n", "mine": "scratch.py\n"},
            "project/scratch.py",
            "git ignores it (`mine` line 1: `scratch.py`)",
        ),
        (
            ["project"],
            {".config/git/ignore": "scratch.py\n"},
            "project/scratch.py",
            "git ignores it (`ignore` line 1: `scratch.py`)",
        ),
        (
            ["project"],
            {".gitconfig": "[core\n"},
            "project/a.py",
            "Git does not report whether it ignores it: fatal: bad config line 1",
        ),
        ([".", "inner"], {".gitignore": "inner/\n"}, "inner/a.py", None),
        (  # without a HEAD, Git knows nothing
            [],
            {".gitignore": "a.py\n", ".git/config": ""},
            "a.py",
            "git ignores it (`.gitignore` line 1: `a.py`)",
        ),
    ],
    ids=["the user's own file", "its default", "a broken configuration", "an outer repository", "no repository"],
)
def test_git_has_a_say_in_its_repositories(
    repositories: list[str], files: dict[str, str], path: str, reason: str | None, folder: Path
) -> None:
    for name in repositories:
        run_git(folder, "init", "--quiet", name)
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    found = _find(folder / path, home=str(folder))
    assert (found and found[: len(reason or "")]) == reason


_NO_FILE = "it is not a file of at most 10 MiB"


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda path: path.symlink_to(".midtokenignore"), "Too many levels of symbolic links"),
        (os.mkfifo, _NO_FILE),
        (lambda path: path.symlink_to("/dev/zero"), _NO_FILE),
        (lambda path: os.truncate(os.open(path, os.O_CREAT | os.O_WRONLY), 11 * 2**20), _NO_FILE),
    ],
    ids=["loop", "pipe", "device", "size"],
)
def test_an_unreadable_ignore_file_excludes(make: Callable[[Path], None], problem: str, folder: Path) -> None:
    make(folder / ".midtokenignore")
    assert _find(folder / "a.py") == f"`{folder}/.midtokenignore` cannot be read: {problem}"


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("file:///c%3A/Users/me/a.py", "it is on the drive C:, where its ignore files cannot be read"),
        ("file:///c%3A/Users/me/.ENV", "it looks like a credentials file (`.env*`)"),
        ("file://server/share/a.py", "it is on the machine server, where its ignore files cannot be read"),
        ("file:///a%00b.py", "its path has a NUL byte, and no file has such a path"),
        ("untitled:.env", "it looks like a credentials file (`.env*`)"),
        ("vscode-notebook-cell:/nowhere/.ssh/a.ipynb#W0", "it looks like a credentials file (`.ssh/`)"),
        ("untitled:Untitled-1", None),
        ("file:///nowhere/new/folder/a.py", None),
        ("xy:z", None),
    ],
)
def test_other_addresses_are_judged_as_far_as_they_can_be(uri: str, reason: str | None) -> None:
    assert Policy({}).find_exclusion(uri) == reason


def _find_without_file(uri: str, language: str, exclude: Sequence[str], *folders: Path) -> str | None:
    folder_uris = [each.as_uri() for each in folders]
    return Policy(GIT_ENVIRONMENT).find_exclusions({uri: language}, exclude, folder_uris)[uri]


@pytest.mark.parametrize("uri", ["untitled:Untitled-1", "untitled:///Untitled-1", "inmemory:///model/1", "file://", ""])
def test_a_document_without_a_file_has_the_rules_of_its_language_and_workspace(uri: str, folder: Path) -> None:
    for name in ("python", "python.django", "django.python", "python-ts", "Python", "python3"):
        assert _find_without_file(uri, name, ["*.py"]) == "setting exclude: `*.py`"
    assert _find_without_file(uri, "dotenv", []) == "it looks like a credentials file (`*.env`)"
    assert _find_without_file(uri, "yaml", ["src/*.yml"]) is None
    assert _find_without_file(uri, "python", [], folder) is None
    (folder / ".midtokenignore").write_text("*.rs\n")
    run_git(folder, "init", "--quiet", "inner")
    (folder / "inner" / ".gitignore").write_text("*\n")
    found = [_find_without_file(uri, language, [], folder) for language in ("rust", "go")]
    assert found == ["`.midtokenignore` line 1: `*.rs`", None]
    assert _find_without_file(uri, "", [], folder, folder / "inner") == "git ignores it (`.gitignore` line 1: `*`)"


def test_rules_that_name_a_file_in_other_case_exclude_it(folder: Path) -> None:
    (folder / ".midtokenignore").write_text("# ours\n\nSECRET.PY\n")
    assert _find(folder / "secret.py") == "`.midtokenignore` line 3: `SECRET.PY`"
    assert _find(folder / "other.py", ["OTHER.*"]) == "setting exclude: `OTHER.*`"


@pytest.mark.parametrize("rule", ["HIDDEN/", "/Hidden/*.PY", "secret.PY"])
def test_behind_a_link_case_does_not_count(rule: str, folder: Path) -> None:
    run_git(folder, "init", "--quiet")
    (folder / "real").mkdir()
    (folder / "hidden").symlink_to("real")
    (folder / ".gitignore").write_text(f"{rule}\n")
    assert _find(folder / "hidden" / "Secret.py") == f"git ignores it (`.gitignore` line 1: `{rule}`)"


@pytest.mark.parametrize("ignores_case", [True, False])
def test_gits_own_rules_regard_case_as_git_does(ignores_case: bool, folder: Path) -> None:
    run_git(folder, "init", "--quiet")
    run_git(folder, "config", "core.ignorecase", str(ignores_case))
    (folder / ".gitignore").write_text("SECRET.PY\n")
    assert (_find(folder / "secret.py") is not None) is ignores_case


def test_a_pattern_of_the_setting_that_can_match_nothing_excludes_everything(folder: Path) -> None:
    reason = _find(folder / "a.py", ["ok", "[a"])
    assert reason == "setting exclude: `[a` is a pattern that can match nothing, so please correct it"
    reason = _find(folder / "a.py", ["[[:alpha:]]"])
    assert reason == "setting exclude: `[[:alpha:]]` has a named set, which is not supported"


def test_an_ignore_file_includes_nothing_that_one_above_it_excludes(folder: Path) -> None:
    (folder / "project").mkdir()
    (folder / ".midtokenignore").write_text("*.py\n")
    (folder / "project" / ".midtokenignore").write_text("!a.py\n")
    assert _find(folder / "project" / "a.py") == "`.midtokenignore` line 1: `*.py`"


@pytest.mark.parametrize(
    ("uri", "paths", "elsewhere"),
    [
        ("file:///home/me/a.py", ("/home/me/a.py",), None),
        ("FILE:/home/me/a.py", ("/home/me/a.py",), None),
        ("file://localhost/a%20b/%C3%A9.py", ("/a b/é.py",), None),
        ("file:///a/%FF.py", ("/a/\udcff.py",), None),
        ("file:///a/b%2Fc%23.py", ("/a/b/c#.py",), None),
        ("file:///a/b#c.py", ("/a/b", "/a/b#c.py"), None),
        ("vscode-notebook-cell:/a/b.ipynb#W0", ("/a/b.ipynb", "/a/b.ipynb#W0"), None),
        ("untitled:Untitled-1", ("Untitled-1",), None),
        ("untitled:/home/me/.env", ("/home/me/.env",), None),
        ("file://", (), None),
        ("", (), None),
        ("file:///c%3A/Users/me/.env", ("/c:/Users/me/.env",), "the drive C:"),
        ("file:///C:/a.py", ("/C:/a.py",), "the drive C:"),
        ("file:///c:%5CUsers%5Cme", ("/c:/Users/me",), "the drive C:"),
        ("file://C:/a.py", ("/C:/a.py",), "the drive C:"),
        ("c:\\Users\\me\\.env", ("/c:/Users/me/.env",), "the drive C:"),
        ("file://server/share/a.py", ("/share/a.py",), "the machine server"),
        ("vscode-remote://ssh-remote%2Bhost/home/a.py", ("/home/a.py",), "the machine ssh-remote+host"),
    ],
)
def test_the_path_of_a_uri_is_decoded_and_known_as_one_on_another_machine_or_drive(
    uri: str, paths: tuple[str, ...], elsewhere: str | None
) -> None:
    assert read_uri(uri) == (paths, elsewhere)


@pytest.mark.parametrize(
    ("links", "path", "spellings"),
    [
        ({"link": "a/b"}, "link/../x", {"link/../x", "a/x"}),
        ({}, "new/./x.py", {"new/x.py"}),  # a file that does not exist
        ({}, "/x.py", {"x.py"}),
        ({"c": "d", "d": "c"}, "c/x.py", {"c/x.py", "d/x.py"}),  # a loop has an end
    ],
)
def test_a_path_counts_as_it_is_written_and_as_links_lead(
    links: dict[str, str], path: str, spellings: set[str], folder: Path
) -> None:
    (folder / "a" / "b").mkdir(parents=True)
    for name, target in links.items():
        (folder / name).symlink_to(target)
    found = {*_iter_spellings(f"{folder}/{path}")}
    assert {f"{folder}/{each}" for each in spellings if ".." not in each} <= found
    assert len(found) == len(spellings)


_UNKNOWN = "whether a rule excludes it is not known yet"


class _SlowPolicy(Policy):
    """A policy whose answers wait until the test allows them. It excludes what is in `excluded`."""

    def __init__(self) -> None:
        super().__init__({})
        self.excluded: set[str] = set()
        self.may_answer = threading.Event()
        self.asked: list[list[str]] = []

    def find_exclusions(self, languages: Mapping[str, str], *_: Sequence[str]) -> dict[str, str | None]:
        self.asked.append(list(languages))
        found = {uri: "a rule" if uri in self.excluded else None for uri in languages}
        self.may_answer.wait(20)
        return found


class _Bench:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.policy = _SlowPolicy()
        self.exclusions = Exclusions(self.policy, lambda: self.now_s)
        self.exclusions.configure((), [])

    async def ask(self, uri: str = "a") -> str | None:
        await self.exclusions.ask({uri: ""}, wait_s=0.01)
        return self.exclusions.find_exclusion(uri)

    async def ask_until_known(self, uri: str = "a") -> str | None:
        self.policy.may_answer.set()
        await self.exclusions.ask({uri: ""})
        await wait_for(lambda: not self.exclusions._looks)
        return self.exclusions.find_exclusion(uri)


@pytest.fixture
async def bench() -> _Bench:
    return _Bench()


async def test_an_answer_is_valid_for_a_second_and_asked_again_after_half_of_it(bench: _Bench) -> None:
    await bench.ask_until_known()
    bench.policy.may_answer.clear()
    bench.policy.excluded.add("a")
    for bench.now_s, exclusion, num_asked in ((0.4, None, 1), (0.9, None, 2), (1.1, _UNKNOWN, 2)):
        assert await bench.ask() == exclusion
        await wait_for(lambda num_asked=num_asked: len(bench.policy.asked) == num_asked)  # type: ignore[misc]
    assert await bench.ask_until_known() == "a rule"


async def test_what_is_excluded_stays_so_until_the_policy_says_otherwise(bench: _Bench) -> None:
    bench.policy.excluded.add("a")
    assert await bench.ask_until_known() == "a rule"
    bench.policy.may_answer.clear()
    bench.policy.excluded.clear()
    bench.now_s = 9.0
    assert await bench.ask() == "a rule"
    assert await bench.ask_until_known() is None


async def test_an_answer_by_older_settings_does_not_count(bench: _Bench) -> None:
    await bench.ask()
    bench.exclusions.configure(("a*",), [])
    bench.policy.excluded.add("a")
    assert await bench.ask_until_known() == "a rule"
    assert len(bench.policy.asked) == 2


async def test_a_document_waits_for_no_others(bench: _Bench) -> None:
    await bench.exclusions.ask(dict.fromkeys("bcd", ""), wait_s=0.01)
    assert await bench.ask() == _UNKNOWN
    assert bench.policy.asked == [["b", "c", "d"], ["a"]]  # the first is not answered yet
    bench.policy.may_answer.set()


async def test_who_waits_until_it_is_known_waits_for_the_settings_too(bench: _Bench) -> None:
    exclusions = Exclusions(bench.policy)
    bench.policy.may_answer.set()
    waiting = asyncio.create_task(exclusions.ask({"a": ""}))
    await asyncio.sleep(0.05)
    assert (waiting.done(), exclusions.find_exclusion("a")) == (False, _UNKNOWN)
    exclusions.configure((), [])
    await asyncio.wait_for(waiting, 20)
    assert exclusions.find_exclusion("a") is None


async def test_changed_rules_count_within_a_second(tmp_path: Path) -> None:
    now_s = [0.0]
    exclusions = Exclusions(Policy({"PATH": os.environ["PATH"]}), lambda: now_s[0])
    exclusions.configure((), [])
    uri, rules = (tmp_path / "a.py").as_uri(), tmp_path.resolve() / ".midtokenignore"
    seen = []
    for text in ("b.py\n", "a.py\n"):
        rules.write_text(text)
        now_s[0] += 1.0
        await exclusions.ask({uri: ""})
        seen.append(exclusions.find_exclusion(uri))
    assert seen == [None, "`.midtokenignore` line 1: `a.py`"]
