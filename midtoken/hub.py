"""Downloads a model from a hub into the cache that other programs use, too.

`python -m midtoken.hub NAME REVISION PIN FILE ACTION` is a process of its own, which may be killed at any time: what
was downloaded stays, and the next download goes on there. Only the files that a model needs are taken, or if FILE is
not empty only that GGUF file. None of them is run, and each must have the hash that the hub names. It prints a line for
each step: how much there is in percent, and a text; last, why it failed. PIN gets the path of the folder or file when
it is complete. With the action `try`, only what describes the model is downloaded, and what that says is printed.

huggingface_hub names the model, its files and their hashes, and knows the user's token, mirror and cache. Its own
download (2.4) is not used: when it is interrupted it deletes what it has, each time the connection is cut it loses up
to ten megabytes, and it compares sizes but no hashes.
"""

import json
import os
import re
import shutil
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
from huggingface_hub import HfApi, constants, hf_hub_url
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
    RevisionResolutionError,
)
from huggingface_hub.file_download import repo_folder_name
from huggingface_hub.hf_api import ModelInfo, RepoSibling
from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status
from huggingface_hub.utils.sha import git_hash, sha_fileobj

from inference.errors import LaunchError, MidtokenError, ModelError
from inference.model_folder import check_model_folder, name_other_format
from inference.proxies import find_proxy
from inference.serving.private_files import FileLock, make_private_folder
from midtoken.generated_folder import make_folder
from midtoken.gguf_file import CutOffError, list_part_names, read_metadata
from midtoken.models import FAILED, FOUND, IN_VAIN, TRY, run_forecast

_WEIGHTS = "model.safetensors"
_PART = re.compile(r"model-\d+-of-\d+\.safetensors|model\.safetensors\.index\.json")
_TEXTS = (
    *("adapter_config.json", "config.json", "generation_config.json", "midtoken.json"),
    *("tokenizer.json", "tokenizer_config.json"),
)
_OTHER_TOKENIZERS = ("added_tokens.json", "merges.txt", "tokenizer.model", "vocab.json")  # without tokenizer.json
_PICKLE = "only as a pickle ({}), which can run any code when it is read"
_OTHER_WEIGHTS = {
    "adapter_model.safetensors": "only as an adapter ({}), which has to be merged with its model",
    **dict.fromkeys((".bin", ".pt", ".pth", ".ckpt"), _PICKLE),
}
_REFUSALS = {
    OfflineModeIsEnabled: "{name} cannot be downloaded, since HF_HUB_OFFLINE forbids to ask {hub}",
    GatedRepoError: "{name} is gated: accept its conditions at {hub}/{name}, and set HF_TOKEN to your token",
    RevisionNotFoundError: "{name} has no revision {revision}",
    RepositoryNotFoundError: "{hub} has no model {name}; if it is private, set HF_TOKEN to your token",
    HFValidationError: "{name} cannot be the name of a model",
}
_STATUSES = {
    401: "{hub} does not know the token in HF_TOKEN",
    429: "{hub} has had too many requests; try again later",
}
_PORTAL = "a network that wants you to sign in, or a proxy, may answer in its place; open the hub in a browser"
_PASSING = (408, 429, *range(500, 600))
_HASH = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")  # of Git, or SHA-256
_TIMEOUT_S = 10.0
_MAX_FAILURES = 5  # of the connection, without a byte between them
_SHOW_S = 0.5
_LARGE = (".gguf", ".safetensors")  # with weights
_BEGINNING = 2**20  # bytes of a file with weights, then twice as many, until they say which weights there are


@dataclass(frozen=True, slots=True)
class _File:
    url: str
    num_bytes: int
    hash: str
    blob: Path  # where the cache has its bytes
    place: Path  # where the model's folder has a link to them

    @property
    def partial(self) -> Path:
        return self.blob.with_name(f"{self.blob.name}.incomplete")

    @property
    def present(self) -> Path | None:
        """What has its bytes, or its first ones."""
        return next((path for path in (self.place, self.blob, self.partial) if path.exists()), None)

    @property
    def num_present_bytes(self) -> int:
        return self.present.stat().st_size if self.present else 0


class _Download:
    """The files of one commit of a model, and how much of them is in the cache."""

    def __init__(self, repository: str, info: ModelInfo, gguf: str) -> None:
        """Raises ModelError if what the hub names cannot be run."""
        commit, storage = _check_hash(info.sha), _find_storage(repository)
        self.folder = storage / "snapshots" / commit
        licences = [tag.removeprefix("license:") for tag in info.tags or () if tag.startswith("license:")]
        self._repository, self._licence = repository, ", ".join(licences) or "not named"
        self._title = f"{repository} (licence: {self._licence})"
        self._files = list[_File]()
        siblings = info.siblings or []
        gguf = _find_file(repository, gguf, [each.rfilename for each in siblings])
        self.path = self.folder / gguf
        for each in _choose(repository, siblings, gguf):
            digest = _check_hash(each.lfs.sha256 if each.lfs else each.blob_id)
            url = hf_hub_url(repository, each.rfilename, revision=commit)
            place = self.folder / each.rfilename
            self._files.append(_File(url, each.size or 0, digest, storage / "blobs" / digest, place))
        self._num_bytes = sum(file.num_bytes for file in self._files)
        self._shown_at = 0.0

    def run(self) -> None:
        """Raises ModelError, OSError or httpx2.HTTPError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._check_space()
        self.examine(".gguf")
        for file in self._files:
            self._fetch(file)
        self.show(0)

    def examine(self, *suffixes: str) -> dict[str, str]:
        """Downloads the small files, and the beginnings of those with these suffixes. Returns what they say.

        Raises ModelError if the model cannot be run, or as `run` does.
        """
        with tempfile.TemporaryDirectory(prefix="midtoken-model-") as name:
            try:
                self._describe(Path(name), suffixes)
                said = run_forecast(Path(name) / self.path.relative_to(self.folder))
            except ModelError as error:
                raise ModelError(str(error).replace(f"{name}/", "").replace(name, self._repository)) from None
        return {"licence": self._licence, "download": f"{self._num_bytes / 1e9:.2f} GB", **said}

    def _describe(self, folder: Path, suffixes: tuple[str, ...]) -> None:
        """Makes a folder like that of the model, with holes in place of weights."""
        for file in self._files:
            target = folder / file.place.relative_to(self.folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            if file.place.suffix not in _LARGE:
                self._fetch(file)
                shutil.copyfile(file.place, target)
            elif file.place.suffix in suffixes:
                self._copy_beginning(file, target)
            self.show(0)

    def _copy_beginning(self, file: _File, target: Path) -> None:
        """Copies as much of a file as names all its weights; in place of the rest, there is a hole."""
        num_bytes = 0
        while num_bytes < file.num_bytes and not (num_bytes and _is_described(target)):
            num_bytes = min(2 * num_bytes or _BEGINNING, file.num_bytes)
            self._download(file, num_bytes)
            with (file.present or file.partial).open("rb") as beginning:
                target.write_bytes(beginning.read(num_bytes))
        os.truncate(target, file.num_bytes)

    def show(self, every_s: float = _SHOW_S) -> None:
        """Prints how much there is, unless it was shown just now."""
        now_s = time.monotonic()
        if now_s - self._shown_at >= every_s:
            self._shown_at, num_bytes = now_s, self._count_present()
            shown = f"downloading {self._title}, {num_bytes / 1e6:,.0f} of {self._num_bytes / 1e6:,.0f} MB"
            _say(f"{100 * num_bytes // max(1, self._num_bytes)} {shown}")

    def _count_present(self) -> int:
        return sum(file.num_present_bytes for file in self._files)

    def _check_space(self) -> None:
        missing, free = self._num_bytes - self._count_present(), shutil.disk_usage(self.folder).free
        if missing > free:
            raise ModelError(
                f"{self._title} needs {missing / 1e6:,.0f} MB more, and the disk of {constants.HF_HUB_CACHE} has only "
                f"{free / 1e6:,.0f} MB free; HF_HOME names another place"
            )

    def _fetch(self, file: _File) -> None:
        if file.place.exists():
            return
        self._download(file, file.num_bytes)
        if not file.blob.exists():
            if _compute_hash(file) != file.hash:
                file.partial.unlink()
                raise ModelError(
                    f"{file.place.name} does not have the hash that the hub reports ({file.hash}), and was deleted"
                )
            file.partial.replace(file.blob)
        try:
            file.place.parent.mkdir(parents=True, exist_ok=True)
            file.place.symlink_to(os.path.relpath(file.blob, file.place.parent))
        except FileExistsError:
            pass
        except OSError:  # Windows has links for developers only
            file.blob.replace(file.place)

    def _download(self, file: _File, end: int) -> None:
        """Downloads a file up to a byte, goes on where it was cut off, and tries again."""
        failures = 0
        file.partial.parent.mkdir(parents=True, exist_ok=True)
        if file.present is None:
            file.partial.touch()
        while (start := file.num_present_bytes) < end:
            try:
                self._append(file, end)
                if file.num_present_bytes == start:
                    break  # it has no more, and so another hash
            except httpx2.TransportError as error:
                failures = 0 if file.num_present_bytes > start else failures + 1
                if failures == _MAX_FAILURES:
                    raise LaunchError(
                        f"{file.place.name} was cut off ({error}); the next download continues there"
                    ) from None
                time.sleep(failures)

    def _append(self, file: _File, end: int) -> None:
        last = "" if end == file.num_bytes else str(end - 1)
        with file.partial.open("ab") as target:
            headers = build_hf_headers() | {"Accept-Encoding": "identity", "Range": f"bytes={target.tell()}-{last}"}
            with get_session().stream("GET", file.url, headers=headers, timeout=_TIMEOUT_S) as response:
                if response.status_code == httpx2.codes.RANGE_NOT_SATISFIABLE:
                    return
                hf_raise_for_status(response)
                if "text/html" in response.headers.get("Content-Type", ""):
                    raise LaunchError(f"a web page was sent instead of {file.place.name}: {_PORTAL}")
                if response.status_code == httpx2.codes.OK:  # it sends the whole file
                    target.truncate(0)
                for chunk in response.iter_bytes():
                    target.write(chunk)
                    target.flush()
                    self.show()
                    if target.tell() > end:
                        return


def _is_described(path: Path) -> bool:
    """True if the beginning of a file names all its weights. Raises ModelError if it is no such file."""
    if path.suffix == ".safetensors":
        with path.open("rb") as file:
            return path.stat().st_size >= 8 + int.from_bytes(file.read(8), "little")
    with suppress(CutOffError):
        return bool(read_metadata(path))
    return False


def _say(line: str) -> None:
    """Prints a line at once, without what would end it or steer a terminal: a hub may name anything."""
    os.write(sys.stdout.fileno(), "".join(filter(str.isprintable, line)).encode() + b"\n")


def _find_storage(repository: str) -> Path:
    return Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=repository, repo_type="model")


def _check_hash(text: str | None) -> str:
    """Returns it; it becomes a part of a path. Raises ModelError."""
    if text is None or not _HASH.fullmatch(text):
        raise ModelError("the server is not a hub: it reports no commits and hashes")
    return text


def _choose(repository: str, found: list[RepoSibling], gguf: str) -> list[RepoSibling]:
    """Returns the files that a model needs, the large ones last. Raises ModelError."""
    names = {each.rfilename for each in found}
    ggufs = sorted(name for name in names if name.endswith(".gguf"))
    parts = list_part_names(gguf) if gguf else []
    if missing := [name for name in parts if name not in names]:
        raise ModelError(f"{repository} has no {missing[0]}; its GGUF files are {', '.join(ggufs) or 'none'}")
    if parts:
        return [each for each in found if each.rfilename in parts]
    if ggufs and not any(name.endswith(".safetensors") for name in names):
        raise ModelError(
            f"{repository} has its weights as GGUF: name the file, {repository}:FILE, of {', '.join(ggufs)}"
        )
    for name in ("config.json", "tokenizer.json"):
        other = name_other_format(names)
        if name not in names and (other or name == "config.json"):
            raise ModelError(f"{repository} cannot be run: it has no {name}{other}")
    texts = _TEXTS if "tokenizer.json" in names else _TEXTS + _OTHER_TOKENIZERS
    weights = {_WEIGHTS} & names or {name for name in names if _PART.fullmatch(name)}
    if not weights:
        others = [what.format(name) for end, what in _OTHER_WEIGHTS.items() for name in names if name.endswith(end)]
        raise ModelError(f"{repository} has no {_WEIGHTS}" + (f"; its weights are there {others[0]}" if others else ""))
    wanted = [each for each in found if each.rfilename in weights or each.rfilename in texts]
    return sorted(wanted, key=lambda each: (each.rfilename in weights, each.rfilename))


def _find_file(repository: str, gguf: str, names: list[str]) -> str:
    """Returns the GGUF file, or its first part, that `HubModel.file` means. Raises ModelError unless there is one."""
    if not gguf or gguf.endswith(".gguf"):
        return gguf
    ending = re.compile(rf"(?!(.*/)?mmproj)(.*[./-])?{gguf}(-00001-of-\d{{5}})?\.gguf", re.IGNORECASE)
    found = sorted(name for name in names if ending.fullmatch(name))
    if len(found) != 1:
        raise ModelError(
            f"{repository} has {len(found) or 'no'} files of the quantization {gguf}: name one, {repository}:FILE, of "
            f"{', '.join(found or sorted(name for name in names if name.endswith('.gguf'))) or 'none'}"
        )
    return found[0]


def _compute_hash(file: _File) -> str:
    if len(file.hash) == 40:
        return git_hash(file.partial.read_bytes())
    with file.partial.open("rb") as content:
        return sha_fileobj(content).hex()


def _download_model(repository: str, revision: str, gguf: str, lock: FileLock, action: str) -> Path | None:
    """Returns the folder or file of the model, and downloads what is missing in it; None if it was only tried."""
    api = HfApi()
    try:
        info = api.model_info(repository, revision=revision, files_metadata=True, timeout=_TIMEOUT_S)
    except (httpx2.TransportError, OfflineModeIsEnabled) as error:
        with suppress(RevisionResolutionError, MidtokenError):
            commit = api.resolve_revision(repository, revision=revision, local_files_only=True).resolved
            folder = _find_storage(repository) / "snapshots" / commit
            path = folder / _find_file(repository, gguf, [p.relative_to(folder).as_posix() for p in folder.rglob("*")])
            check_model_folder(make_folder(path))
            return path
        raise error
    download = _Download(repository, info, gguf)
    download.show()
    while not lock.try_acquire(shared=False):  # another editor downloads it
        time.sleep(_SHOW_S)
        download.show()
    if action == TRY:
        _say(FOUND + json.dumps(download.examine(*_LARGE)))
        return None
    download.run()
    check_model_folder(make_folder(download.path))
    return download.path


def _describe(error: Exception, repository: str, revision: str) -> MidtokenError:
    """Returns an error with one sentence: a ModelError where to try again would be in vain."""
    hub = re.sub("//.*@", "//", constants.ENDPOINT)  # without a password
    if isinstance(error, MidtokenError):
        return error
    for kind, text in _REFUSALS.items():
        if isinstance(error, kind):
            return ModelError(text.format(hub=hub, name=repository, revision=revision))
    if isinstance(error, HfHubHTTPError):
        status = error.response.status_code
        text = _STATUSES.get(status, f"{{hub}} refuses {{name}} with status {status}")
        return (LaunchError if status in _PASSING else ModelError)(text.format(hub=hub, name=repository))
    address = urlsplit(hub)
    proxy = find_proxy(address.hostname or "", f"{address.scheme}_proxy", "all_proxy")
    if isinstance(error, httpx2.HTTPError):
        through = f" through {proxy}" if proxy else ""
        return LaunchError(f"cannot reach {hub}{through}: {error or type(error).__name__}")
    if proxy is not None and proxy.problem:
        return LaunchError(f"cannot reach {hub}: {proxy.problem}")
    if isinstance(error, OSError):
        return ModelError(f"cannot write to {constants.HF_HUB_CACHE}: {error.strerror}; HF_HOME names another place")
    return LaunchError(f"the answer of {hub} about {repository} cannot be read ({type(error).__name__}); {_PORTAL}")


def _main(repository: str, revision: str, pin: Path, gguf: str, action: str) -> int:
    try:
        make_private_folder(pin.parent, "XDG_DATA_HOME")
        with FileLock(pin.parent / f"{repo_folder_name(repo_id=repository, repo_type='model')}.lock") as lock:
            path = _download_model(repository, revision, gguf, lock, action)
            if path is None:
                return 0
            fresh = pin.with_name(f"{pin.name}.new")
            fresh.write_bytes(os.fsencode(path))
            fresh.replace(pin)
    except BrokenPipeError:  # who has asked for it has ended
        return 1
    except Exception as error:
        failure = _describe(error, repository, revision)
        _say(f"{FAILED}{' '.join(str(failure).split())}")
        return IN_VAIN if isinstance(failure, ModelError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), *sys.argv[4:]))
