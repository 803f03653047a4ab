"""A hub on loopback: what huggingface_hub asks of one, and what can go wrong with it."""

import contextlib
import hashlib
import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

from huggingface_hub.utils.sha import git_hash

from inference.platforms import ADDRESS

_LARGE = ".safetensors"


@dataclass
class Repository:
    """A model: its files by commit, and its branches and tags."""

    commits: dict[str, dict[str, bytes]]  # 40 digits: name: content
    revisions: dict[str, str]  # name: commit
    tags: tuple[str, ...] = ("license:apache-2.0",)
    token: str | None = None  # who does not send it gets no files

    @classmethod
    def of(cls, files: dict[str, bytes], **more: Any) -> "Repository":
        commit = hashlib.sha1(json.dumps(sorted((name, git_hash(data)) for name, data in files.items())).encode())
        return cls({commit.hexdigest(): files}, {"main": commit.hexdigest()}, **more)

    def add(self, files: dict[str, bytes], revision: str = "main") -> str:
        """A new commit on a branch."""
        (commit,) = Repository.of(files).commits
        self.commits[commit], self.revisions[revision] = files, commit
        return commit


@dataclass
class Faults:
    """What the hub does wrong."""

    status: int | None = None  # of every answer
    body: bytes | None = None  # of every answer
    error_code: str | None = None  # the header X-Error-Code of that answer
    cut_after: int | None = None  # an answer with a large file ends after so many bytes
    num_cuts: int = 1_000_000
    waits_after_cut: bool = False  # and the connection stays open
    delay_s: float = 0.0  # before each large file
    has_wrong_hash: bool = False
    num_more_bytes: int = 0  # that the hub promises
    ignores_range: bool = False
    evil_field: str | None = None  # of the description: a path in the place of a hash


@dataclass
class Hub:
    """The running hub."""

    url: str = ""
    repositories: dict[str, Repository] = field(default_factory=dict)
    faults: Faults = field(default_factory=Faults)
    requests: list[str] = field(default_factory=list)  # method, path, range
    store_tokens: set[str | None] = field(default_factory=set)  # that the store of large files was sent
    agents: set[str] = field(default_factory=set)  # the headers User-Agent
    store_url: str = ""  # to which requests for large files are redirected, as to a CDN
    num_sent_bytes: int = 0

    def find_hash(self, name: str, commit: str, file: str) -> str:
        """Returns the SHA-256 of a large file."""
        return hashlib.sha256(self.repositories[name].commits[commit][file]).hexdigest()

    def answer(self, handler: "_Handler") -> None:
        path = unquote(urlsplit(handler.path).path).strip("/")
        token = handler.headers.get("Authorization", "").removeprefix("Bearer ") or None
        self.requests.append(" ".join(filter(None, (handler.command, handler.path, handler.headers.get("Range")))))
        self.agents.add(handler.headers["User-Agent"])
        if path.startswith("store/"):
            self.store_tokens.add(token)
            return self._send_large(handler, path)
        if self.faults.status is not None or self.faults.body is not None:
            code = {"X-Error-Code": self.faults.error_code} if self.faults.error_code else {}
            return handler.reply(self.faults.status or 200, self.faults.body or b"{}", code)
        found = re.fullmatch("(api/models/)?([^/]+/[^/]+)/(?:revision|resolve)/(.*)", path)
        is_api, name, rest = found.groups() if found else (None, path, "")
        repository = self.repositories.get(name)
        if repository is None:
            return handler.reply(404, b'{"error":"Repository not found"}', {"X-Error-Code": "RepoNotFound"})
        named = (each for each in [*repository.revisions, *repository.commits] if rest.startswith(f"{each}/"))
        revision = rest if is_api else next(named, "main")
        commit = repository.revisions.get(revision, revision)
        if commit not in repository.commits:
            return handler.reply(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
        files = repository.commits[commit]
        if is_api:
            return handler.reply(200, json.dumps(self._describe(name, repository, commit, files)).encode())
        if repository.token not in (None, token):
            return handler.reply(403, b"{}", {"X-Error-Code": "GatedRepo"})
        file = rest.removeprefix(f"{revision}/")
        headers = {"X-Repo-Commit": commit, "ETag": f'"{git_hash(files[file])}"'}
        if file.endswith(_LARGE):
            digest = hashlib.sha256(files[file]).hexdigest()
            location = {"Location": f"{self.store_url}/store/{name}/{commit}/{file}"}
            linked = {"X-Linked-ETag": f'"{digest}"', "X-Linked-Size": str(len(files[file]))}
            return handler.reply(302, b"", headers | location | linked)
        return handler.reply(200, files[file], headers)

    def _describe(self, name: str, repository: Repository, commit: str, files: dict[str, bytes]) -> dict[str, Any]:
        faults, siblings = self.faults, list[dict[str, Any]]()
        for file, data in files.items():
            size = len(data) + faults.num_more_bytes * (file == "model.safetensors")
            sibling: dict[str, Any] = {"rfilename": file, "size": size, "blobId": git_hash(data)}
            if file.endswith(_LARGE):
                digest = hashlib.sha256(data + b"?" * faults.has_wrong_hash).hexdigest()
                sibling["lfs"] = {"sha256": digest, "size": size, "pointerSize": 134}
            siblings.append(sibling)
        found = {"id": name, "sha": commit, "siblings": siblings, "tags": list(repository.tags), "private": False}
        for each in (found, *siblings):
            if faults.evil_field in each:
                each[faults.evil_field] = "../../../evil"
        return found

    def _send_large(self, handler: "_Handler", path: str) -> None:
        _, owner, model, commit, file = path.split("/", 4)
        data, faults = self.repositories[f"{owner}/{model}"].commits[commit][file], self.faults
        time.sleep(faults.delay_s)
        is_part = "Range" in handler.headers and not faults.ignores_range
        first, last = handler.headers["Range"][6:].split("-") if is_part else ("0", "")
        start, sent = int(first), data[int(first) : int(last) + 1 if last else None]
        full = len(sent)
        if faults.cut_after is not None and faults.num_cuts > 0:
            faults.num_cuts -= 1
            sent = sent[: faults.cut_after]
        if start >= len(data):
            return handler.reply(416, b"")
        place = {"Content-Range": f"bytes {start}-{start + full - 1}/{len(data)}"} if is_part else {}
        handler.reply(206 if is_part else 200, sent, {"Content-Length": str(full), **place})
        self.num_sent_bytes += len(sent)
        if faults.waits_after_cut:
            time.sleep(5)
        handler.close_connection = True


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def do_GET(self) -> None:
        self.hub.answer(self)

    def reply(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | (headers or {})).items():
            self.send_header(name, value)
        self.end_headers()
        with contextlib.suppress(ConnectionError):  # as of a client that was killed
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def run_hub() -> Iterator[Hub]:
    """A hub on one port, and its store of large files on another, to which it redirects."""
    hub = Hub()
    handler = type("Handler", (_Handler,), {"hub": hub})
    servers = [ThreadingHTTPServer((ADDRESS, 0), handler) for _ in range(2)]
    for server in servers:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    hub.url, hub.store_url = (f"http://{ADDRESS}:{server.server_address[1]}" for server in servers)
    try:
        yield hub
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()
