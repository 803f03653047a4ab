import os
from hashlib import sha256
from pathlib import Path

import pytest

from inference.errors import LaunchError
from inference.serving.key_file import KeyFile
from tests.support.access import ANN, BOB, write_keys


def _read(path: Path, said: list[str] | None = None) -> KeyFile:
    return KeyFile(path, "--keys", (said if said is not None else []).append)


def test_the_key_says_who_it_is_and_the_name_tells_nothing(tmp_path: Path) -> None:
    digest = sha256(BOB.encode()).hexdigest()
    path = write_keys(tmp_path, f"# the team\n\n  ann\t{ANN}\r\nbob sha256:{digest}\n")
    keys = _read(path)
    ann, again, bob = (
        keys.find_tenant(f"{scheme} {key}") for scheme, key in (("Bearer", ANN), ("bearer", ANN), ("Bearer", BOB))
    )
    assert ann == again != bob
    assert ann is not None
    assert bob is not None
    assert "ann" not in ann
    assert _read(path).find_tenant(f"Bearer {ANN}") != ann  # of another process
    wrong = (
        "",
        ANN,
        f"Basic {ANN}",
        "Bearer",
        "Bearer ",
        f"Bearer {ANN[:-1]}",
        f"Bearer {ANN} ",
        f"Bearer sha256:{digest}",
    )
    assert [keys.find_tenant(each) for each in (*wrong, f"Bearer {digest}", "Bearer é\udcff", "Bearer ann")] == [
        None
    ] * 11


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f"ann {ANN}\nbob\n", "line 2: it needs a user and a key with a blank between them, and has 1 words"),
        (f"ann {ANN} x", "line 1: it needs a user and a key"),
        (f"ann {ANN}é", "line 1: the key has characters that no header can have"),
        ("ann short", "line 1: the key has less than 16 characters"),
        (f"ann sha256:{ANN}", "line 1: after sha256: there must be 64 hexadecimal digits"),
        (f"ann {ANN}\n\nann {BOB}", "line 3: this user has a key already"),
        (f"ann {ANN}\nbob {ANN}", "line 2: another user has this key already"),
        (f"ann {ANN}\nbob sha256:{sha256(ANN.encode()).hexdigest()}", "line 2: another user has this key already"),
        ("# nobody\n", "has no key"),
        ("", "has no key"),
    ],
)  # fmt: skip
def test_a_file_that_is_wrong_is_refused_with_the_line_and_without_its_keys(
    tmp_path: Path, text: str, problem: str
) -> None:
    with pytest.raises(LaunchError, match=problem) as raised:
        _read(write_keys(tmp_path, text))
    assert str(tmp_path / "keys") in str(raised.value)
    assert not {ANN, BOB, "short"} & set(str(raised.value).split())


@pytest.mark.parametrize(
    ("owner", "mode", "is_used"),
    [(None, 0o600, True), (None, 0o400, True), (None, 0o640, False), (None, 0o604, False), (65534, 0o600, False)],
)
def test_a_file_that_others_could_read_is_refused(tmp_path: Path, owner: int | None, mode: int, is_used: bool) -> None:
    path = write_keys(tmp_path, mode=mode)
    if owner is not None and os.getuid():
        pytest.skip("only root can make a file of another user")
    if owner is not None:
        os.chown(path, owner, owner)
    if is_used:
        assert _read(path).find_tenant(f"Bearer {ANN}")
        return
    with pytest.raises(LaunchError, match=r"keys of --keys has secrets, .*: chmod 600 "):
        _read(path)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"ann \xff")
    for name, problem in (("none", "No such file"), ("", "Is a directory"), ("binary", "not text in UTF-8")):
        with pytest.raises(LaunchError, match=problem):
            _read(tmp_path / name)


def test_a_change_of_the_file_counts_from_the_next_request_on(tmp_path: Path) -> None:
    said: list[str] = []
    keys = _read(write_keys(tmp_path), said)
    ann = keys.find_tenant(f"Bearer {ANN}")
    write_keys(tmp_path, f"ann {ANN}\n")
    assert (keys.find_tenant(f"Bearer {ANN}"), keys.find_tenant(f"Bearer {BOB}")) == (ann, None)
    assert said == [f"{tmp_path / 'keys'} has changed; users that have a key: 1"]


@pytest.mark.parametrize("text", [None, "", "bob\n"])
def test_after_a_change_that_is_wrong_the_keys_before_it_remain_valid(tmp_path: Path, text: str | None) -> None:
    said: list[str] = []
    path = write_keys(tmp_path)
    keys = _read(path, said)
    if text is None:
        path.unlink()
    else:
        write_keys(tmp_path, text)
    assert [bool(keys.find_tenant(f"Bearer {key}")) for key in (ANN, BOB)] == [True, True]
    assert [line.partition(". ")[2] for line in said] == ["The keys that were read before remain valid"]
