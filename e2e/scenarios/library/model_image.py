"""An OCI image that holds a model, and docker-registry on the loopback of the node, which has it."""

import base64
import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from e2e.scenarios.library.api import Api, Object
from e2e.scenarios.library.volumes import await_pod, is_ready

# containerd speaks plain HTTP to localhost at this port only; at any other one it tries TLS first.
_PORT: Final = 80
_REPOSITORY: Final = "models/churn"
_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
_CONFIG: Final = "application/vnd.oci.image.config.v1+json"
_LAYER: Final = "application/vnd.oci.image.layer.v1.tar"
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class ModelImage:
    """An image of one layer. blobs: media type and bytes, the manifest last; digest: that of the manifest."""

    blobs: Sequence[tuple[str, bytes]]
    digest: str

    def uri(self, digest: str | None = None) -> str:
        """What spec.model.uri says; digest: of another image, which the registry does not have."""
        return f"oci://localhost:{_PORT}/{_REPOSITORY}@{digest or self.digest}"


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
    return ModelImage([*parts.items(), (_MANIFEST, manifest)], _digest(manifest))


def serve(api: Api, namespace: str, registry_image: str, image: ModelImage) -> str:
    """A pod of docker-registry on the loopback of the node; its name, once this image was pushed to it."""
    content = json.dumps([(kind, base64.b64encode(data).decode()) for kind, data in image.blobs])
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
                    "image": registry_image,
                    "imagePullPolicy": "IfNotPresent",
                    "args": [str(_PORT), _REPOSITORY, content],
                    "readinessProbe": {
                        "httpGet": {
                            "host": "127.0.0.1",
                            "port": _PORT,
                            "path": f"/v2/{_REPOSITORY}/manifests/{image.digest}",
                            "httpHeaders": [{"name": "Accept", "value": _MANIFEST}],
                        },
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
