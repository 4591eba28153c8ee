"""Emulations of the providers that cannot run here: Google's and Azure's object stores, the Hugging Face hub.

They answer what the clients ask in the providers' formats, over TLS under the providers' names, and prove
nothing about the providers themselves.
"""

import hashlib
import http.server
import json
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

import pytest
import trustme

GCS, AZURE, HUB, CDN = (
    "storage.googleapis.com",
    "riskmodels.blob.core.windows.net",
    "huggingface.co",
    "cdn-lfs.huggingface.co",
)
COMMIT = "0a1b2c3d"


@dataclass
class Clouds:
    """files: what each of them holds. requests: host, path and Authorization of each request."""

    files: Mapping[str, bytes]
    ca: str = ""
    lfs: frozenset[str] = frozenset()
    """The files that the hub has in LFS, and states the digests of."""
    page: int = 2
    """The most entries of a page of the hub."""
    token: str | None = None
    """What the hub wants as a token, None if it is public."""
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)


@contextmanager
def emulated(files: Mapping[str, bytes], monkeypatch: pytest.MonkeyPatch) -> Iterator[Clouds]:
    """The emulations on a port of this machine, to which the providers' names resolve meanwhile."""
    authority = trustme.CA()
    clouds = Clouds(files, authority.cert_pem.bytes().decode())
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), type("Handler", (_Handler,), {"clouds": clouds})
    )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(GCS, AZURE, HUB, CDN).configure_cert(context)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", server.server_address[1]))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield clouds
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    clouds: Clouds
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        host, query = self.headers["Host"], parse_qs(parts.query)
        self.clouds.requests.append((host, unquote(self.path), self.headers["Authorization"]))
        folders = {GCS: "/models/", AZURE: "/models/", CDN: "/"}
        if host == HUB:
            self._hub(parts.path, query)
        elif "list-type" in query or query.get("comp") == ["list"]:
            page = _gcs_page if host == GCS else _azure_page
            prefix = query.get("prefix", [""])[0]
            self._say(page({k: v for k, v in self.clouds.files.items() if k.startswith(prefix)}).encode())
        else:
            self._file(unquote(parts.path).removeprefix(folders[host]))

    def _hub(self, path: str, query: Mapping[str, list[str]]) -> None:
        if self.clouds.token is not None and self.headers["Authorization"] != f"Bearer {self.clouds.token}":
            self._say(b"sign in", status=401)
        elif path.startswith(f"/api/models/risk/churn/tree/{COMMIT}"):
            folder = path.removeprefix(f"/api/models/risk/churn/tree/{COMMIT}").strip("/")
            self._tree(folder, query)
        elif path.startswith(f"/risk/churn/resolve/{COMMIT}/"):
            name = path.removeprefix(f"/risk/churn/resolve/{COMMIT}/")
            self._say(b"", status=302, Location=f"https://{CDN}/{name}")
        else:
            self._say(b"Entry not found", status=404)

    def _tree(self, folder: str, query: Mapping[str, list[str]]) -> None:
        """A page of the entries of a folder; none of a file, as the hub has it."""
        below, recursive = f"{folder}/" if folder else "", "recursive" in query
        found = {}
        for name, data in sorted(self.clouds.files.items()):
            inside = name.removeprefix(below) if name.startswith(below) else ""
            parts = inside.split("/")
            for depth in range(1, len(parts)) if recursive else range(1, min(2, len(parts))):
                path = below + "/".join(parts[:depth])
                found[path] = {"type": "directory", "path": path, "size": 0}
            if inside and (recursive or len(parts) == 1):
                lfs = {"lfs": {"oid": hashlib.sha256(data).hexdigest(), "size": len(data)}}
                stated = lfs if name in self.clouds.lfs else {}
                oid = hashlib.sha1(data, usedforsecurity=False).hexdigest()
                found[name] = {"type": "file", "oid": oid, "path": name, "size": len(data), **stated}
        if not found:
            self._say(b"Entry not found", status=404)
            return
        entries, first = list(found.values()), int(query.get("cursor", ["0"])[0])
        end, more = first + self.clouds.page, {}
        if end < len(entries):
            further = f"{'recursive=true&' if recursive else ''}cursor={end}"
            more["Link"] = f'<https://{HUB}{urlsplit(self.path).path}?{further}>; rel="next"'
        self._say(json.dumps(entries[first:end]).encode(), 200, **more)

    def _file(self, name: str) -> None:
        data = self.clouds.files.get(name)
        if data is None:
            self._say(b"", status=404)
            return
        start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").split("-")[0])
        etag = f'"{hashlib.sha256(data).hexdigest()[:16]}"'
        headers = {"ETag": etag, "Last-Modified": formatdate(0, usegmt=True), "Accept-Ranges": "bytes"}
        if "Range" in self.headers:
            headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        self._say(data[start:], status=206 if "Range" in self.headers else 200, **headers)

    def _say(self, body: bytes, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


def _gcs_page(files: Mapping[str, bytes]) -> str:
    entries = "".join(
        f"<Contents><Key>{escape(key)}</Key><Size>{len(data)}</Size>"
        "<LastModified>2026-01-01T00:00:00.000Z</LastModified>"
        f"<ETag>{hashlib.sha256(data).hexdigest()}</ETag></Contents>"
        for key, data in files.items()
    )
    return f"<ListBucketResult><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>"


def _azure_page(files: Mapping[str, bytes]) -> str:
    entries = "".join(
        f"<Blob><Name>{escape(key)}</Name><Properties><Content-Length>{len(data)}</Content-Length>"
        "<Last-Modified>Thu, 01 Jan 2026 00:00:00 GMT</Last-Modified><Etag>0x1</Etag>"
        "<Content-Type>application/octet-stream</Content-Type></Properties></Blob>"
        for key, data in files.items()
    )
    return f"<EnumerationResults><Blobs>{entries}</Blobs><NextMarker/></EnumerationResults>"
