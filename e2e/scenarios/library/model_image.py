"""An OCI image that holds a model, and a registry on the node's loopback that serves it to containerd."""

import base64
import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from e2e.scenarios.library.api import Api, Object
from e2e.scenarios.library.volumes import await_pod, is_ready

# containerd speaks plain HTTP to localhost at this port only; at any other one it tries TLS first.
_PORT: Final = 80
_REPOSITORY: Final = f"localhost:{_PORT}/models/churn"
_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
_CONFIG: Final = "application/vnd.oci.image.config.v1+json"
_LAYER: Final = "application/vnd.oci.image.layer.v1.tar"
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
# What of the distribution specification a pull by digest needs.
_SERVER: Final = """
import base64, http.server, json, sys

CONTENT = {digest: (kind, base64.b64decode(data)) for digest, (kind, data) in json.loads(sys.argv[2]).items()}

class Registry(http.server.BaseHTTPRequestHandler):
    def do_HEAD(self):
        kind, data = CONTENT.get(self.path.rpartition("/")[2], ("", b""))
        known = bool(data) or self.path == "/v2/"
        self.send_response(200 if known else 404)
        self.send_header("Content-Type", kind or "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        return data

    def do_GET(self):
        self.wfile.write(self.do_HEAD())

http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Registry).serve_forever()
"""


@dataclass(frozen=True)
class ModelImage:
    """An image of one layer. blobs: media type and bytes by digest; digest: that of the manifest."""

    blobs: Mapping[str, tuple[str, bytes]]
    digest: str

    def uri(self, digest: str | None = None) -> str:
        """What spec.model.uri says; digest: of another image, which the registry does not have."""
        return f"oci://{_REPOSITORY}@{digest or self.digest}"


def model_image(files: Mapping[str, bytes]) -> ModelImage:
    """The image that `FROM scratch` and a COPY of these files make."""
    layer = _layer(files)
    config = {
        "architecture": _ARCHITECTURES[platform.machine()],
        "os": "linux",
        "config": {},
        "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
    }
    parts = {_LAYER: layer, _CONFIG: json.dumps(config).encode()}
    described = {kind: _descriptor(kind, data) for kind, data in parts.items()}
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": described[_CONFIG],
            "layers": [described[_LAYER]],
        }
    ).encode()
    parts[_MANIFEST] = manifest
    return ModelImage({_digest(data): (kind, data) for kind, data in parts.items()}, _digest(manifest))


def serve(api: Api, namespace: str, client_image: str, image: ModelImage) -> str:
    """A pod that is a registry with this image on the loopback of the node; its name, once it answers."""
    content = {
        digest: (kind, base64.b64encode(data).decode()) for digest, (kind, data) in image.blobs.items()
    }
    pod: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "registry", "namespace": namespace},
        "spec": {
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
            "hostNetwork": True,
            "securityContext": {"runAsUser": 0},  # for the port
            "containers": [
                {
                    "name": "registry",
                    "image": client_image,
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["python3", "-c", _SERVER, str(_PORT), json.dumps(content)],
                    "readinessProbe": {
                        "httpGet": {"host": "127.0.0.1", "port": _PORT, "path": "/v2/"},
                        "periodSeconds": 1,
                    },
                }
            ],
        },
    }
    api.apply(pod)
    await_pod(api, "registry", namespace, is_ready)
    return "registry"


def _layer(files: Mapping[str, bytes]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for path, data in files.items():
            info = tarfile.TarInfo(path)
            info.size, info.mode = len(data), 0o644
            archive.addfile(info, io.BytesIO(data))
    return made.getvalue()


def _descriptor(kind: str, data: bytes) -> Object:
    return {"mediaType": kind, "digest": _digest(data), "size": len(data)}


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
