"""Places where models lie that are no HTTP server: an S3 server, and a PersistentVolumeClaim."""

import base64
import hashlib
import io
import json
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import onnx
from onnx import TensorProto, helper

from e2e.scenarios.library.api import Api, Object
from e2e.scenarios.library.models import INPUT, OUTPUT
from e2e.scenarios.library.pods import NAMESPACE, USER
from e2e.scenarios.library.waiting import Unmet, wait_for

Files = Mapping[str, bytes]

S3_HOST: Final = f"object-store.{NAMESPACE}.svc:7070"
S3_ENDPOINT: Final = f"http://{S3_HOST}"
S3_KEY: Final = {"AWS_ACCESS_KEY_ID": "scenarios", "AWS_SECRET_ACCESS_KEY": "no-secret-at-all"}
_START_SECONDS: Final = 180
_WRITE: Final = """
import base64, json, pathlib, sys
for path, content in json.loads(sys.argv[1]).items():
    file = pathlib.Path("/data") / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(base64.b64decode(content))
"""


def folder_with_weights(scratch: Path, slope: float) -> Files:
    """A model whose weights lie in a file of their own: y = slope * x."""
    graph = helper.make_graph(
        nodes=[helper.make_node("Mul", [INPUT, "slope"], [OUTPUT])],
        name="external",
        inputs=[helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, ["batch", "width"])],
        outputs=[helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, ["batch", "width"])],
        initializer=[helper.make_tensor("slope", TensorProto.FLOAT, [1], [slope])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    for tensor in model.graph.initializer:
        tensor.raw_data = onnx.numpy_helper.to_array(tensor).tobytes()
        tensor.ClearField("float_data")
    onnx.save_model(
        model, scratch / "model.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0
    )
    return {name: (scratch / name).read_bytes() for name in ("model.onnx", "weights.bin")}


def packed(files: Files) -> bytes:
    """The files as a tar archive with gzip."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for path, data in files.items():
            info = tarfile.TarInfo(path)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return made.getvalue()


def folder_digest(files: Files) -> str:
    """The digest of a folder for spec.model.sha256, as the documentation defines it."""
    lines = (
        f"{hashlib.sha256(content).hexdigest()} {len(content)} {path}\n"
        for path, content in sorted(files.items())
    )
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def s3_server(api: Api, registry: str, tag: str, buckets: Files) -> None:
    """An S3 server with these objects, BUCKET/KEY, and wait until it runs."""
    pod = _writer("object-store", NAMESPACE, registry, tag, buckets, {"emptyDir": {}})
    pod["spec"]["initContainers"] = pod["spec"]["containers"]
    pod["spec"]["containers"] = [
        {
            "name": "server",
            "image": f"{registry}/tailbound-object-store:{tag}",
            "imagePullPolicy": "IfNotPresent",
            "args": ["--port", ":7070", "posix", "--sidecar", "/meta", "/data"],
            "env": [
                {"name": "ROOT_ACCESS_KEY", "value": S3_KEY["AWS_ACCESS_KEY_ID"]},
                {"name": "ROOT_SECRET_KEY", "value": S3_KEY["AWS_SECRET_ACCESS_KEY"]},
            ],
            "readinessProbe": {"tcpSocket": {"port": 7070}, "periodSeconds": 1},
            "volumeMounts": [
                {"name": "data", "mountPath": "/data"},
                {"name": "meta", "mountPath": "/meta"},
            ],
        }
    ]
    pod["spec"]["volumes"].append({"name": "meta", "emptyDir": {}})
    pod["metadata"]["labels"] = {"app": "object-store"}
    api.apply(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "object-store", "namespace": NAMESPACE},
            "spec": {"selector": {"app": "object-store"}, "ports": [{"port": 7070}]},
        }
    )
    api.apply(pod)
    await_pod(api, "object-store", NAMESPACE, is_ready)


def shared(api: Api, namespace: str, registry: str, tag: str) -> str:
    """A volume that claims of the StorageClass with the name of the namespace get; the name of the volume."""
    volume = f"{namespace}-shared"
    path = f"/var/tmp/tailbound-e2e/{volume}"
    folder = {"hostPath": {"path": path, "type": "DirectoryOrCreate"}}
    api.apply(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": volume},
            "spec": {
                "capacity": {"storage": "64Mi"},
                "accessModes": ["ReadWriteMany"],
                "storageClassName": namespace,
                "persistentVolumeReclaimPolicy": "Retain",
                **folder,
            },
        }
    )
    opener = _writer("opener", namespace, registry, tag, {}, folder)
    opener["spec"]["containers"][0]["command"] = ["python3", "-c", "import os; os.chmod('/data', 0o777)"]
    opener["spec"]["securityContext"] = {"runAsUser": 0}  # the folder on the node is root's
    opener["spec"]["restartPolicy"] = "Never"
    api.apply(opener)
    await_pod(api, "opener", namespace, lambda status: status.get("phase") == "Succeeded")
    api.delete("Pod", "opener", namespace)
    return volume


def node_folder(api: Api, namespace: str, name: str, path: str) -> None:
    """A PersistentVolumeClaim of a folder of the node, which is made if it is not there."""
    volume = f"{namespace}-{name}"
    size = {"storage": "16Mi"}
    api.apply(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": volume},
            "spec": {
                "capacity": size,
                "accessModes": ["ReadWriteMany"],
                "storageClassName": "",
                "claimRef": {"name": name, "namespace": namespace},
                "hostPath": {"path": path, "type": "DirectoryOrCreate"},
            },
        }
    )
    api.apply(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "accessModes": ["ReadWriteMany"],
                "storageClassName": "",
                "volumeName": volume,
                "resources": {"requests": size},
            },
        }
    )


def claim(api: Api, namespace: str, name: str, registry: str, tag: str, files: Files) -> None:
    """A PersistentVolumeClaim with these files, on a folder of the node."""
    node_folder(api, namespace, name, f"/var/tmp/tailbound-e2e/{namespace}-{name}")
    writer = _writer(
        "writer", namespace, registry, tag, files, {"persistentVolumeClaim": {"claimName": name}}
    )
    writer["spec"]["securityContext"] = {"runAsUser": 0}  # the folder on the node is root's
    writer["spec"]["restartPolicy"] = "Never"
    api.apply(writer)
    await_pod(api, "writer", namespace, lambda status: status.get("phase") == "Succeeded")
    api.delete("Pod", "writer", namespace)


def is_ready(status: Object) -> bool:
    """Whether this status of a pod says that it is ready."""
    return any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions", []))


def await_pod(api: Api, name: str, namespace: str, arrived: Callable[[Object], bool]) -> None:
    """Wait until the status of a pod is as `arrived` wants it."""

    def probe() -> bool | Unmet:
        status = api.need("Pod", name, namespace).get("status", {})
        return True if arrived(status) else Unmet(str(status))

    wait_for(f"pod {name}", probe, _START_SECONDS)


def _writer(name: str, namespace: str, registry: str, tag: str, files: Files, volume: Object) -> Object:
    """A pod that writes the files into the volume."""
    content = {path: base64.b64encode(data).decode() for path, data in files.items()}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
            "securityContext": {"runAsUser": USER, "fsGroup": USER},
            "containers": [
                {
                    "name": "writer",
                    "image": f"{registry}/tailbound-client:{tag}",
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["python3", "-c", _WRITE, json.dumps(content)],
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                }
            ],
            "volumes": [{"name": "data", **volume}],
        },
    }
