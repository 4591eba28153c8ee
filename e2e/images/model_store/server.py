"""A model store that can be told to misbehave: files over HTTP with Range, ETag and faults.

    GET, HEAD /NAME          the file; single byte ranges, ETag (its sha256), If-Range
    GET /NAME?fault=KIND     the file with this fault, for this request only
    PUT /NAME                keeps the body under this name until the process ends
    POST /_faults            {"name": NAME, "fault": KIND} holds for later requests of NAME; "none" ends it
    GET /_requests           every request for a file so far: [{"name", "range", "status"}, ...]
    GET /_healthz            200

Faults: see `Fault`. The files come from the folder in STORE_FOLDER (default /srv/models).
"""

import asyncio
import hashlib
import os
import re
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from aiohttp import web

PORT = 8080
MAX_UPLOAD_BYTES = 1 << 30
CHUNK_BYTES = 64 * 1024
SLOW_BYTES_PER_SECOND = 256 * 1024
HUGE_CONTENT_LENGTH = 1 << 50


class Fault(StrEnum):
    """What can go wrong with a download."""

    NONE = "none"
    NOT_FOUND = "not-found"  # 404
    FORBIDDEN = "forbidden"  # 403
    ERROR = "error"  # 500
    SLOW = "slow"  # SLOW_BYTES_PER_SECOND
    TRUNCATE = "truncate"  # closes the connection after half of what it announced
    HUGE = "huge"  # announces HUGE_CONTENT_LENGTH bytes, then sends the file and closes
    WRONG_BYTES = "wrong-bytes"  # as many bytes as the file has, but other ones


STATUS_OF_FAULT = {Fault.NOT_FOUND: 404, Fault.FORBIDDEN: 403, Fault.ERROR: 500}


@dataclass
class Store:
    """Files by name, the faults that hold now, and what was asked for."""

    files: dict[str, bytes]
    faults: dict[str, Fault] = field(default_factory=dict)
    requests: list[dict[str, str | int | None]] = field(default_factory=list)


STORE = web.AppKey("store", Store)


def read_folder(folder: Path) -> dict[str, bytes]:
    """Every regular file of the folder, by its name."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def byte_range(header: str | None, size: int) -> tuple[int, int] | None:
    """First and last byte of a single-range header, or None for the whole file.

    Raises ValueError if the range lies outside the file (HTTP 416). Several ranges get all of it.
    """
    match = re.fullmatch(r"bytes=(\d*)-(\d*)", header or "")
    if match is None or match.groups() == ("", ""):
        return None
    first, last = match.groups()
    if first == "":
        start, end = max(0, size - int(last)), size - 1
    else:
        start, end = int(first), min(int(last) if last else size - 1, size - 1)
    if start > end:
        raise ValueError(f"range {header!r} lies outside of {size} bytes")
    return start, end


def parse_fault(text: str) -> Fault:
    """The fault of this name; HTTP 400 that lists the known ones otherwise."""
    try:
        return Fault(text)
    except ValueError:
        known = ", ".join(Fault)
        raise web.HTTPBadRequest(text=f"fault {text!r} is unknown; use one of: {known}\n") from None


async def send(response: web.StreamResponse, body: bytes, *, slow: bool) -> None:
    """Write the body, at SLOW_BYTES_PER_SECOND if asked to."""
    for offset in range(0, len(body), CHUNK_BYTES):
        await response.write(body[offset : offset + CHUNK_BYTES])
        if slow:
            await asyncio.sleep(CHUNK_BYTES / SLOW_BYTES_PER_SECOND)


def cut(request: web.Request, body: bytes, etag: str) -> tuple[int, bytes, dict[str, str]]:
    """Status, bytes and headers that answer this request's Range."""
    headers = {"Accept-Ranges": "bytes", "ETag": etag, "Content-Type": "application/octet-stream"}
    stale = request.headers.get("If-Range", etag) != etag
    try:
        wanted = None if stale else byte_range(request.headers.get("Range"), len(body))
    except ValueError:
        return 416, b"", {**headers, "Content-Range": f"bytes */{len(body)}"}
    if wanted is None:
        return 200, body, headers
    start, end = wanted
    return 206, body[start : end + 1], {**headers, "Content-Range": f"bytes {start}-{end}/{len(body)}"}


async def get_file(request: web.Request) -> web.StreamResponse:
    """GET and HEAD of a file, with the fault that holds for it."""
    store = request.app[STORE]
    name = request.match_info["name"]
    asked = request.query.get("fault")
    fault = parse_fault(asked) if asked is not None else store.faults.get(name, Fault.NONE)
    body = store.files.get(name)
    if body is None:
        fault = Fault.NOT_FOUND
    status = STATUS_OF_FAULT.get(fault)
    if status is None:
        assert body is not None
        etag = f'"{hashlib.sha256(body).hexdigest()}"'
        if fault is Fault.WRONG_BYTES:
            body = bytes(byte ^ 0xFF for byte in body)
        status, content, headers = cut(request, body, etag)
    else:
        content, headers = f"{name}: {fault}\n".encode(), {}
    store.requests.append({"name": name, "range": request.headers.get("Range"), "status": status})
    response = web.StreamResponse(status=status, headers=headers)
    response.content_length = HUGE_CONTENT_LENGTH if fault is Fault.HUGE else len(content)
    await response.prepare(request)
    if request.method == "HEAD":
        return response
    await send(
        response,
        content[: len(content) // 2] if fault is Fault.TRUNCATE else content,
        slow=fault is Fault.SLOW,
    )
    if fault in (Fault.TRUNCATE, Fault.HUGE) and request.transport is not None:
        request.transport.close()
    return response


async def put_file(request: web.Request) -> web.Response:
    """Keep the body under this name until the process ends."""
    request.app[STORE].files[request.match_info["name"]] = await request.read()
    return web.Response(status=201)


async def set_fault(request: web.Request) -> web.Response:
    """Make a fault hold for a name, whether or not a file of it exists yet."""
    body = await request.json()
    request.app[STORE].faults[str(body["name"])] = parse_fault(str(body["fault"]))
    return web.Response(status=204)


async def get_requests(request: web.Request) -> web.Response:
    """Every request for a file so far."""
    return web.json_response(request.app[STORE].requests)


async def healthz(_: web.Request) -> web.Response:
    """The process serves."""
    return web.Response(text="ok\n")


def application(files: dict[str, bytes]) -> web.Application:
    """The whole server, over these files."""
    app = web.Application(client_max_size=MAX_UPLOAD_BYTES)
    app[STORE] = Store(files=dict(files))
    app.router.add_get("/_healthz", healthz)
    app.router.add_get("/_requests", get_requests)
    app.router.add_post("/_faults", set_fault)
    app.router.add_get("/{name}", get_file)  # HEAD comes with it
    app.router.add_put("/{name}", put_file)
    return app


if __name__ == "__main__":
    web.run_app(
        application(read_folder(Path(os.environ.get("STORE_FOLDER", "/srv/models")))),
        port=PORT,
        access_log=None,
    )
