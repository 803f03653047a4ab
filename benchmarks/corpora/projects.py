"""Projects of other people to measure with: packages at pinned versions, downloaded once into build/projects.

Nothing of them is run or installed. Each becomes a Git repository of its own, without tests and built files, as its
authors have it open in an editor.
"""

import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measures.report import track
from models.training.corpus import SourceFile

_FOLDER = Path("build/projects")
_ENDINGS = {"python": (".py",), "typescript": (".ts", ".tsx"), "go": (".go",), "rust": (".rs",)}
_MANIFESTS = ("package.json", "tsconfig.json", "go.mod", "Cargo.toml")
_HEADER_CHARS = 1_000
_LEFT_OUT = ("test", "tests", "_tests", "testdata", "__tests__", "fuzz", "benches", "examples", "dist", "_tools")


@dataclass(frozen=True, slots=True)
class Project:
    """A package, as `pip download`, `npm pack` or `apt-get download` names it."""

    language: str
    package: str
    sha256: str  # of its archive
    sources: str = "."  # the folder in the archive that becomes the project's

    @property
    def root(self) -> Path:
        """Its folder, after `fetch_projects`."""
        return (_FOLDER / self.package.replace("/", "-")).resolve()

    def list_files(self) -> list[str]:
        """Returns the paths of its source files, relative to its folder."""
        return sorted(
            path.relative_to(self.root).as_posix()
            for path in self.root.rglob("*.*")
            if path.suffix in _ENDINGS[self.language]
        )

    def fetch(self) -> None:
        """Downloads it, unless it is here. Raises ValueError if the archive is another one."""
        if self.root.exists():
            return
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            archive = fetch_archive(self.package, self.sha256, folder)
            unpacked = folder / "unpacked"
            unpacked.mkdir()
            subprocess.run([*_UNPACK[archive.suffix], archive.name, "unpacked"], cwd=folder, check=True)
            self._copy(unpacked / self.sources)

    def _copy(self, sources: Path) -> None:
        for path in sorted(sources.rglob("*")):
            relative = path.relative_to(sources)
            if path.is_file() and not path.is_symlink() and self._is_wanted(relative):
                (self.root / relative.parent).mkdir(parents=True, exist_ok=True)
                shutil.copy(path, self.root / relative)
        subprocess.run(["git", "init", "--quiet", self.root], check=True)

    def _is_wanted(self, path: Path) -> bool:
        is_source = path.suffix in _ENDINGS[self.language] or path.name in _MANIFESTS
        is_test = path.stem.endswith(("_test", ".test", ".spec", ".d")) or {*path.parts[:-1], path.stem} & {*_LEFT_OUT}
        return is_source and not is_test


_DOWNLOAD: Mapping[str, list[str]] = {  # by what stands before the version
    "==": [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"],
    "=": ["apt-get", "download", "-qq"],
    "@": ["npm", "pack", "--silent"],
}
_UNPACK: Mapping[str, list[str]] = {
    ".whl": [sys.executable, "-m", "zipfile", "-e"],
    ".tgz": [sys.executable, "-m", "tarfile", "-e"],
    ".deb": ["dpkg-deb", "-x"],
}


def fetch_archive(package: str, sha256: str, folder: Path) -> Path:
    """Downloads a package's archive into an empty folder. Raises ValueError if it is another one."""
    command = next(command for mark, command in _DOWNLOAD.items() if mark in package)
    subprocess.run([*command, package], cwd=folder, check=True, capture_output=True)
    [archive] = folder.iterdir()
    if hashlib.sha256(archive.read_bytes()).hexdigest() != sha256:
        raise ValueError(f"the archive of {package} is not the one that is pinned")
    return archive


def _from_npm(package: str, sha256: str, language: str = "typescript") -> Project:
    return Project(language, package, sha256, "package")


def _from_go(package: str, sha256: str, module: str) -> Project:
    return Project("go", package, sha256, f"usr/share/gocode/src/github.com/{module}")


def _from_rust(package: str, sha256: str, crate: str) -> Project:
    return Project("rust", package, sha256, f"usr/share/cargo/registry/{crate}")


PROJECTS: tuple[Project, ...] = (
    Project("python", "alembic==1.14.0", "99bd884ca390466db5e27ffccff1d179ec5c05c965cfefc0607e69f9e411cb25"),
    Project("python", "celery==5.4.0", "369631eb580cf8c51a82721ec538684994f8277637edde2dfc0dacd73ed97f64"),
    Project("python", "jedi==0.19.2", "a8ef22bde8490f57fe5c7681a3c83cb58874daf72b4784de3cce5b6ef6edb5b9"),
    Project("python", "mkdocs==1.6.1", "db91759624d1647f3f34aa0c3f327dd2601beae39a366d6e064c03468d35c20e"),
    Project("python", "paramiko==3.5.1", "43b9a0501fc2b5e70680388d9346cf252cfb7d00b0667c39e80eb43a408b8f61"),
    Project("python", "redis==5.2.1", "ee7e1056b9aea0f04c6c2ed59452947f34c4940ee025f5dd83e6a6418b6989e4"),
    Project("python", "scrapy==2.12.0", "c33e2dc7da42e727390bacb32dd9938a54ac210fa71972b5c392754f478669cd"),
    Project("python", "sphinx==8.1.3", "09719015511837b76bf6e03e42eb7595ac8c2e41eeb9c29c5b755c6b677992a2"),
    Project("python", "tox==4.23.2", "452bc32bb031f2282881a2118923176445bac783ab97c874b8770ab4c3b76c38"),
    Project("python", "trio==0.28.0", "56d58977acc1635735a96581ec70513cc781b8b6decd299c487d3be2a721cd94"),
    _from_npm("@reduxjs/toolkit@2.5.0", "73fd6e95612c85870a4bb1967420f62364f760689ee02a41214d1b3fb23e95fc"),
    _from_npm("@tiptap/core@2.10.3", "f79baab49aa597c127c0f7bc5cd940a08f2af88d804e8cedc259b1fa599e1611"),
    _from_npm("@trpc/server@11.0.0", "3824b524520230703802d7bcaa5ac4e8c9746a06949b326fe298f33bf7172ba2"),
    _from_npm("mobx@6.13.5", "b85a7f765065c081724a7c49e91f59950151607b2f1c5a77c8ec4231f7129a1b"),
    _from_npm("rxjs@7.8.1", "c532167725ab7d085123209156c93cef22f2479cb9c8527060f1cd903aa9d149"),
    _from_go(
        "golang-github-go-git-go-git-dev=5.4.2-3",
        "a2d87579f6ee3ae85322c035d914722d411d17fcb5da68044809490913ea04a1",
        "go-git/go-git",
    ),
    _from_go(
        "golang-github-hashicorp-hcl-v2-dev=2.14.1-2",
        "1ffd62cfe44b0d4eb5676fe3621d72372e68b66176123e827849dc87396accdf",
        "hashicorp/hcl/v2",
    ),
    _from_go(
        "golang-github-labstack-echo-dev=4.2.1-3",
        "3ec383b8cb239c415d9ab83b3e8871524931f6da13e75e41baf580b74b3599ef",
        "labstack/echo",
    ),
    _from_go(
        "golang-github-prometheus-common-dev=0.39.0-2",
        "c81192f357cbea8fd647a09d8a6a13412bd0a661030ab931de41936fe407da82",
        "prometheus/common",
    ),
    _from_go(
        "golang-github-yuin-goldmark-dev=1.5.4-1",
        "c52d83484318f870494e3170646f7840a1085fd8c7ba77da75a9bb83d196ecf7",
        "yuin/goldmark",
    ),
    _from_rust(
        "librust-h2-dev=0.3.13-2",
        "6e987d5b9c9942144ec3d8765aa865812aa6b349a1a25110e3297641260f4cd4",
        "h2-0.3.13",
    ),
    _from_rust(
        "librust-rustls-dev=0.20.8-4",
        "9bccf5f4d8ab4cc1e3507c90afc92f1623e797de3af9d0530648f766bfdd6aea",
        "rustls-0.20.8",
    ),
    _from_rust(
        "librust-toml-edit-dev=0.14.4-2",
        "badfaff9a0fae1b086e3eae676de4a96edcaade08c230146e7efbc5cb7360312",
        "toml_edit-0.14.4",
    ),
    _from_rust(
        "librust-tracing-subscriber-dev=0.3.16-2",
        "1d313936ed416fd92c312af8c3fd6b5751f489a08d7ebcdd3d1859829673ba4c",
        "tracing-subscriber-0.3.16",
    ),
    _from_rust(
        "librust-trust-dns-proto-dev=0.22.0-4",
        "37d9dac024ac1a982d64390dd300887bb435f72812bfabf9b2a2401196eb1d0e",
        "trust-dns-proto-0.22.0",
    ),
)

# Those that were first published after November 2024, so that older models have not seen them.
NEW_PROJECTS: tuple[Project, ...] = (
    Project("python", "a2a-sdk==1.3.0", "b94a73b5dc7ff1afe5f11d324480f83386a64d02b8a6b719baf013595284cc6c"),
    Project("python", "deepagents==0.7.32", "366bd66c786a66c8d639e40f99614d9e5d37236adf4c5b158f0b2cb27956e28b"),
    Project("python", "openai-agents==0.24.0", "18d4ac34e84ed937333ec8ce46395ed3521ffcbb0a521780a4c2eaa451467f49"),
    Project("python", "strands-agents==1.62.0", "331c94c61a5ddf2c4f06dfd877551bdd1d0bfee5ea89b76d6c546b65ea2104e1"),
    _from_npm("@effect/workflow@0.19.1", "ad2127bbff868e34065dcd2cd13e0b36c7962f1df345f02d4a4af5c36d58acc1"),
    _from_npm("@tanstack/db@0.15.2", "18682e004ce628f78fd144409e8780c9cca774eaac141f953d1a146a573738b9"),
    _from_npm("@tanstack/pacer@0.22.0", "0951d7457b2acf2410112c409917781bb593d35fb1cd0a79fbdea7283c7da138"),
    _from_npm("goscript@0.3.1", "67a85b171565e89ff781071608e0c2712c60053f01c1523602469d33f1229666", "go"),
    _from_npm("ttsc@0.18.4", "d8d0e54ab2bc3ad7d4a7509512c1ceea21ed0a49811c72a5339b332a5edcdd17", "go"),
)


def fetch_projects(is_short: bool = False) -> tuple[Project, ...]:
    """Returns all projects, or two, on this machine."""
    projects = PROJECTS[:2] if is_short else PROJECTS
    for project in track(projects, "fetching projects"):
        project.fetch()
    return projects


def load_new_files(language: str) -> list[SourceFile]:
    """Returns the files of the new projects in a language that persons may have written, not a program."""
    projects = [each for each in NEW_PROJECTS if each.language == language]
    for project in projects:
        project.fetch()
    files = [
        SourceFile(project.package, path, (project.root / path).read_text(encoding="utf-8", errors="replace"))
        for project in projects
        for path in project.list_files()
    ]
    return [file for file in files if "DO NOT EDIT" not in file.text[:_HEADER_CHARS] and "\f" not in file.text]


if __name__ == "__main__":
    for each in fetch_projects():
        print(each.language, each.package, len(each.list_files()))
