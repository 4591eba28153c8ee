"""What an API server has before the operator starts: our kinds, a default class and a runtime."""

from pathlib import Path
from typing import Final

from tailbound.api.names import API_VERSION, DEFAULT_CLASS_ANNOTATION

from e2e.cluster import ControlPlane

_CRDS: Final = Path(__file__).parents[2] / "crds"
_OBJECTS: Final = f"""
apiVersion: {API_VERSION}
kind: HardwareClass
metadata: {{name: cpu, annotations: {{{DEFAULT_CLASS_ANNOTATION}: "true"}}}}
spec: {{}}
---
apiVersion: {API_VERSION}
kind: ClusterServingRuntime
metadata: {{name: onnxruntime}}
spec:
  formats: [{{name: onnx}}]
  server:
    image: runtime:test
    args: ["--model={{{{ model.path }}}}"]
    ports: [{{name: http, containerPort: 8080}}]
    readinessProbe: {{httpGet: {{path: /v2/health/ready, port: http}}}}
"""


def install_kinds(plane: ControlPlane) -> None:
    """Apply the CRDs, the class and the runtime; returns when the API server answers for our kinds."""
    plane.kubectl("apply", "--server-side", "-f", str(_CRDS))
    plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=120s")
    plane.kubectl("apply", "-f", "-", input=_OBJECTS)
