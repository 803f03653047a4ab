"""Code in seven languages that is on this machine or in packages, for what must not be taken for a secret.

Python is the held-out part of the standard library, C++ the headers of torch. The rest is downloaded once into
build/packaged-code, by npm and by apt-get; nothing of it is run. A package that cannot be had is named and skipped.
"""

import hashlib
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from models.training.corpus import iter_held_out

_FOLDER = Path("build/packaged-code")
_NPM = (
    *("fastify@5.1.0", "webpack@5.97.1", "@reduxjs/toolkit@2.5.0", "effect@3.11.0"),
    *("react-native-gesture-handler@2.21.2", "react-native-screens@4.4.0"),
)
_DEBIAN = (
    *("golang-github-spf13-cobra-dev=1.6.1-1", "golang-github-gorilla-mux-dev=1.8.0-1"),
    *("librust-serde-json-dev=1.0.87-1", "librust-clap-dev=4.0.32-1"),
)
_ENDINGS = {
    **{"javascript": ("js", "mjs"), "typescript": ("ts", "tsx"), "java": ("java", "kt"), "go": ("go",)},
    **{"rust": ("rs",), "c++": ("h", "hpp", "cuh")},
}
_MIN_CHARS, _MAX_CHARS, _MAX_LINE_CHARS = 1_000, 200_000, 300  # a longer line is data


def load_code() -> Mapping[str, Sequence[str]]:
    """Returns the texts of each language, in an order that depends on their paths alone."""
    _fetch_missing()
    headers = Path(sysconfig.get_path("purelib")) / "torch" / "include"
    roots = {language: headers if language == "c++" else _FOLDER for language in _ENDINGS}
    found = {language: list(_iter_texts(roots[language], endings)) for language, endings in _ENDINGS.items()}
    return {"python": [file.text for file in iter_held_out()]} | {name: texts for name, texts in found.items() if texts}


def _iter_texts(root: Path, endings: Sequence[str]) -> Iterator[str]:
    paths = (path for ending in endings for path in root.rglob(f"*.{ending}"))
    for path in sorted(paths, key=lambda path: hashlib.sha256(str(path.relative_to(root)).encode()).digest()):
        text = path.read_bytes().decode(errors="replace")
        if _MIN_CHARS <= len(text) <= _MAX_CHARS and max(map(len, text.splitlines())) <= _MAX_LINE_CHARS:
            yield text


def _fetch_missing() -> None:
    for package in (*_NPM, *_DEBIAN):
        folder = (_FOLDER / package.replace("/", "-")).resolve()
        tool = "npm" if package in _NPM else "apt-get"
        with tempfile.TemporaryDirectory() as name:
            fetch = ["npm", "pack", "--silent"] if package in _NPM else ["apt-get", "download", "-qq"]
            if folder.exists() or shutil.which(tool) is None:
                print(*[] if folder.exists() else [f"not downloaded, because {tool} is not installed: {package}"])
            elif subprocess.run([*fetch, package], cwd=name, stdout=subprocess.DEVNULL, check=False).returncode:
                print(f"not downloaded: {package}")
            else:
                [archive] = Path(name).iterdir()
                folder.mkdir(parents=True)
                unpack = ["tar", "-xzf", str(archive), "-C"] if tool == "npm" else ["dpkg-deb", "-x", str(archive)]
                subprocess.run([*unpack, str(folder)], check=True)
