"""Real files of many kinds: some lie on this machine, the others are made by the standard library."""

import gzip
import io
import json
import sqlite3
import struct
import sys
import tarfile
import wave
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

from e2e.demo import filetypes

_ROOT = Path(__file__).parents[2]
_HTML = b"""<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>Opening hours</title></head>
<body><h1>Opening hours</h1><table><tr><th>Monday</th><td>9 to 17</td></tr></table>
<script>document.querySelector("h1").addEventListener("click", () => alert("closed"));</script>
</body></html>
"""
_SHELL = b"""#!/bin/sh
set -eu
for file in "$@"; do
    if [ -f "$file" ]; then sha256sum "$file"; else echo "no file: $file" >&2; exit 1; fi
done
"""
_SQL = b"""CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT NOT NULL, since DATE);
INSERT INTO customers (id, name, since) VALUES (1, 'Ada', '2024-01-01'), (2, 'Grace', '2025-06-30');
SELECT name, COUNT(*) FROM customers JOIN orders ON orders.customer = customers.id GROUP BY name;
"""


def files() -> dict[str, bytes]:
    """Name and content of each sample."""
    return {name: make() for name, make in _MAKERS.items()}


def _json() -> bytes:
    orders = [{"id": number, "items": ["tea", "milk"], "paid": number % 2 == 0} for number in range(20)]
    return json.dumps({"orders": orders}, indent=2).encode()


def _png() -> bytes:
    """A grey gradient of 64 by 64 pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + bytes((x * y) % 256 for x in range(64)) for y in range(64))
    header = struct.pack(">IIBBBBB", 64, 64, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def _pdf() -> bytes:
    """One page with one line of text."""
    text = b"BT /F1 24 Tf 72 720 Td (Quarterly report) Tj ET"
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R"
        b" /Resources << /Font << /F1 5 0 R >> >> >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(text), text),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    body, offsets = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, start=1):
        offsets.append(len(body))
        body += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    size = len(objects) + 1
    trailer = b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (size, len(body))
    return body + b"xref\n0 %d\n0000000000 65535 f \n" % size + table + trailer


def _zip() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("orders.json", _json())
        archive.writestr("index.html", _HTML)
    return buffer.getvalue()


def _tar() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("run.sh"), io.BytesIO(_SHELL))
    return buffer.getvalue()


def _wav() -> bytes:
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(8000)
        sound.writeframes(b"".join(struct.pack("<h", (n * 977) % 20000 - 10000) for n in range(4000)))
    return buffer.getvalue()


def _sqlite() -> bytes:
    with sqlite3.connect(":memory:") as database:
        database.executescript("CREATE TABLE t (a INTEGER, b TEXT); INSERT INTO t VALUES (1, 'one');")
        content = database.serialize()
    database.close()
    return content


_MAKERS: dict[str, Callable[[], bytes]] = {
    "samples.py": lambda: Path(__file__).read_bytes(),
    "chart.png": _png,
    "report.pdf": _pdf,
    "python (program)": lambda: Path(sys.executable).resolve().read_bytes(),
    "orders.json": _json,
    "index.html": lambda: _HTML,
    "archive.zip": _zip,
    "archive.tar": _tar,
    "orders.json.gz": lambda: gzip.compress(_json(), mtime=0),
    "run.sh": lambda: _SHELL,
    "report.sql": lambda: _SQL,
    "tone.wav": _wav,
    "data.sqlite": _sqlite,
    "pyproject.toml": (_ROOT / "pyproject.toml").read_bytes,
    "file-types.yaml": (_ROOT / "examples" / "file-types.yaml").read_bytes,
    "model.onnx": filetypes.model_bytes,
}
