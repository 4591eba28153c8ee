"""docker-registry on the loopback of its host, with one image: `serve.py PORT REPOSITORY CONTENT`.

CONTENT is JSON: media type and Base64 of each blob, in the order of the push, the manifest last.
"""

import base64
import hashlib
import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

_CONFIG = Path("/tmp/registry.yml")
_UP_SECONDS = 30


def main(port: str, repository: str, content: str) -> int:
    """Serve until the registry ends; its exit status."""
    settings = {
        "version": "0.1",
        "storage": {"filesystem": {"rootdirectory": "/tmp/registry"}},
        "http": {"addr": f"127.0.0.1:{port}"},
    }
    _CONFIG.write_text(json.dumps(settings))
    with subprocess.Popen(["docker-registry", "serve", str(_CONFIG)]) as registry:
        _await(f"http://127.0.0.1:{port}/v2/")
        base = f"http://127.0.0.1:{port}/v2/{repository}"
        *blobs, (kind, manifest) = json.loads(content)
        for _, data in blobs:
            _push_blob(base, base64.b64decode(data))
        _send(f"{base}/manifests/image", "PUT", base64.b64decode(manifest), kind)
    return registry.returncode


def _await(url: str) -> None:
    end = time.monotonic() + _UP_SECONDS
    while True:
        try:
            _send(url, "GET")
        except urllib.error.URLError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
        else:
            return


def _push_blob(base: str, data: bytes) -> None:
    upload = _send(f"{base}/blobs/uploads/", "POST", b"")
    digest = hashlib.sha256(data).hexdigest()
    _send(f"{upload}&digest=sha256:{digest}", "PUT", data)


def _send(url: str, method: str, data: bytes | None = None, kind: str = "application/octet-stream") -> str:
    """The Location that the answer names."""
    request = urllib.request.Request(url, data, {"Content-Type": kind}, method=method)
    with urllib.request.urlopen(request, timeout=_UP_SECONDS) as answer:
        return str(answer.headers.get("Location", ""))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
