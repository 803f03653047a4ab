"""Downloads a model from a hub into the cache that other programs use, too.

`python -m midtoken.hub NAME REVISION PIN FILE` is a process of its own, which may be killed at any time: what was
downloaded stays, and the next download goes on there. Only the files that a model needs are taken, or if FILE is not
empty only that GGUF file. None of them is run, and each must have the hash that the hub names. Of a folder, the texts
come first, and say whether it can be run. It prints a line for each step: how much there is in percent, and a text;
last, why it failed. PIN gets the path of the folder or file when it is complete.

`snapshot_download` of huggingface_hub (2.4) deletes what it has when it is interrupted, and compares no hashes, so only
its `http_get` is used, which goes on where a file ends.
"""

import os
import re
import shutil
import sys
import time
from collections.abc import Iterable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, cast
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
from huggingface_hub.file_download import http_get, repo_folder_name
from huggingface_hub.hf_api import ModelInfo
from huggingface_hub.utils import build_hf_headers
from huggingface_hub.utils.sha import git_hash, sha_fileobj

from inference.errors import LaunchError, MidtokenError, ModelError
from inference.model.loader import check_texts, require_llama_cpp
from inference.model_folder import check_model_folder, name_other_format
from inference.platforms import find_proxy
from inference.private_files import FileLock, make_private_folder
from midtoken.gguf import list_part_names, make_folder
from midtoken.models import FAILED, IN_VAIN

_WEIGHTS = "model.safetensors"
_PART = re.compile(r"model-\d+-of-\d+\.safetensors|model\.safetensors\.index\.json")
_TEXTS = (
    *("adapter_config.json", "config.json", "generation_config.json", "midtoken.json"),
    *("tokenizer.json", "tokenizer_config.json"),
)
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
_CHUNK_NBYTES = 2**18  # in ten megabytes, as of huggingface_hub, a slow connection shows no progress
_TIMEOUT_S = 10.0  # of the hub, to describe a model
_SHOW_S = 0.5  # between two lines about the progress


class _Download:
    """The files of one commit of a model."""

    def __init__(self, repository: str, info: ModelInfo, gguf: str) -> None:
        """Raises ModelError if what the hub names cannot be run."""
        self._repository, self._commit, storage = repository, _check_hash(info.sha), _find_storage(repository)
        self._folder, blobs = storage / "snapshots" / self._commit, storage / "blobs"
        licences = [tag.removeprefix("license:") for tag in info.tags or () if tag.startswith("license:")]
        self._title = f"{repository} (licence: {', '.join(licences) or 'not named'})"
        found = {each.rfilename: each for each in info.siblings or ()}
        gguf = _find_gguf(repository, gguf, found)
        self._texts, self._weights = _choose(repository, found, gguf)
        self.path = self._folder / gguf
        chosen = [found[name] for name in (*self._texts, *self._weights)]
        self._num_bytes = {each.rfilename: each.size or 0 for each in chosen}
        hashes = {each.rfilename: each.lfs.sha256 if each.lfs else each.blob_id for each in chosen}
        self._blobs = {name: blobs / _check_hash(hash) for name, hash in hashes.items()}
        self._shown_at = 0.0

    def update(self, _num_bytes: int = 0, every_s: float = _SHOW_S) -> None:
        """Prints how much there is, unless it was shown just now. `http_get` calls it."""
        if time.monotonic() - self._shown_at >= every_s:
            self._shown_at, present, total = time.monotonic(), self._count_present(), sum(self._num_bytes.values())
            _say(
                f"{100 * present // max(1, total)} downloading {self._title}, {present / 1e6:,.0f} of "
                f"{total / 1e6:,.0f} MB"
            )

    def run(self) -> None:
        """Raises ModelError, LaunchError, OSError or httpx2.HTTPError."""
        self._folder.mkdir(parents=True, exist_ok=True)
        missing, free = sum(self._num_bytes.values()) - self._count_present(), shutil.disk_usage(self._folder).free
        if missing > free:
            raise ModelError(
                f"{self._title} needs {missing / 1e6:,.0f} MB more, and the disk of {constants.HF_HUB_CACHE} has only "
                f"{free / 1e6:,.0f} MB free; HF_HOME names another place"
            )
        for name in self._texts:
            self._fetch(name)
        check_texts(self._folder) if self._texts else require_llama_cpp(self.path.name)
        self.update(every_s=0)
        for name in self._weights:
            self._fetch(name)
        check_model_folder(make_folder(self.path))
        self.update(every_s=0)

    def _count_present(self) -> int:
        places = ((self._folder / name, blob, _find_partial(blob)) for name, blob in self._blobs.items())
        present = (next((path for path in some if path.exists()), None) for some in places)
        return sum(path.stat().st_size for path in present if path)

    def _fetch(self, name: str) -> None:
        """Downloads a file, or the rest of it, into the folder of the commit."""
        place, blob = self._folder / name, self._blobs[name]
        if place.exists():
            return
        blob.parent.mkdir(parents=True, exist_ok=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        if not blob.exists():
            self._fill(name, blob)
        place.unlink(missing_ok=True)  # a link to a blob that was deleted
        place.symlink_to(os.path.relpath(blob, place.parent))

    def _fill(self, name: str, blob: Path) -> None:
        """Downloads what a blob has not yet. Raises ModelError for other bytes than the hub's."""
        partial, headers = _find_partial(blob), build_hf_headers() | {"Accept-Encoding": "identity"}
        url = hf_hub_url(self._repository, name, revision=self._commit)
        with partial.open("ab") as target:
            if target.tell() < self._num_bytes[name]:
                show = cast(type[Any], lambda **_: nullcontext(self))
                http_get(url, target, resume_size=target.tell(), headers=headers, tqdm_class=show)
        with partial.open("rb") as content:
            hash = sha_fileobj(content).hex() if len(blob.name) == 64 else git_hash(content.read())
        if hash != blob.name:
            partial.unlink()
            raise ModelError(f"{name} does not have the hash that the hub reports ({blob.name}), and was deleted")
        partial.replace(blob)


def _find_partial(blob: Path) -> Path:
    return blob.with_suffix(".incomplete")


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


def _choose(repository: str, found: Iterable[str], gguf: str) -> tuple[list[str], list[str]]:
    """Returns the texts that a model needs, and its weights. Raises ModelError if it has none."""
    names = set(found)
    ggufs = sorted(name for name in names if name.endswith(".gguf"))
    if gguf:
        parts = list_part_names(gguf)
        if missing := [name for name in parts if name not in names]:
            raise ModelError(f"{repository} has no {missing[0]}; its GGUF files are {', '.join(ggufs) or 'none'}")
        return [], parts
    if ggufs and not any(name.endswith(".safetensors") for name in names):
        raise ModelError(
            f"{repository} has its weights as GGUF: name the file, {repository}:FILE, of {', '.join(ggufs)}"
        )
    for name in ("config.json", "tokenizer.json"):
        if name not in names:
            raise ModelError(f"{repository} cannot be run: it has no {name}{name_other_format(names)}")
    weights = {_WEIGHTS} & names or {name for name in names if _PART.fullmatch(name)}
    if not weights:
        others = [what.format(name) for end, what in _OTHER_WEIGHTS.items() for name in names if name.endswith(end)]
        raise ModelError(f"{repository} has no {_WEIGHTS}" + (f"; its weights are there {others[0]}" if others else ""))
    return sorted(names.intersection(_TEXTS)), sorted(weights)


def _find_gguf(repository: str, gguf: str, names: Iterable[str]) -> str:
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


def _download_model(repository: str, revision: str, gguf: str, lock: FileLock) -> Path:
    """Returns the folder or file of the model, and downloads what is missing in it."""
    api = HfApi()
    try:
        info = api.model_info(repository, revision=revision, files_metadata=True, timeout=_TIMEOUT_S)
    except (httpx2.TransportError, OfflineModeIsEnabled):
        with suppress(RevisionResolutionError, MidtokenError):
            commit = api.resolve_revision(repository, revision=revision, local_files_only=True).resolved
            folder = _find_storage(repository) / "snapshots" / commit
            names = [path.relative_to(folder).as_posix() for path in folder.rglob("*")]
            path = folder / _find_gguf(repository, gguf, names)
            check_model_folder(make_folder(path))
            return path
        raise
    download = _Download(repository, info, gguf)
    download.update(every_s=0)
    while not lock.try_acquire():  # another editor downloads it
        time.sleep(_SHOW_S)
        download.update()
    download.run()
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
        through = f" through {proxy[0]}" if proxy else ""
        return LaunchError(f"cannot reach {hub}{through}: {error or type(error).__name__}")
    if proxy is not None and not proxy[1]:
        return LaunchError(f"cannot reach {hub}: {proxy[0]} cannot be used: it is not http://HOST:PORT")
    if isinstance(error, OSError) and error.strerror:
        return ModelError(f"cannot write to {constants.HF_HUB_CACHE}: {error.strerror}; HF_HOME names another place")
    return LaunchError(f"the answer of {hub} about {repository} cannot be read ({type(error).__name__}); {_PORTAL}")


def _main(repository: str, revision: str, pin: Path, gguf: str) -> int:
    constants.DOWNLOAD_CHUNK_SIZE = _CHUNK_NBYTES
    try:
        make_private_folder(pin.parent, "XDG_DATA_HOME")
        with FileLock(pin.parent / f"{repo_folder_name(repo_id=repository, repo_type='model')}.lock") as lock:
            path = _download_model(repository, revision, gguf, lock)
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
    sys.exit(_main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4]))
