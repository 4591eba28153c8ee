"""What is refused in HardwareClasses and in runtimes."""

from typing import Any

from tests.api_cases.objects import HARDWARE_CLASS, RUNTIME
from tests.api_cases.refusal import (
    DURATION,
    ENV_RESERVED,
    FORMAT,
    KEY_MALFORMED,
    LABEL_VALUE,
    OBJECT_NAME,
    Refusal,
)


def _hardware(name: str, path: str, value: Any, message: str, field: str = "") -> Refusal:
    return Refusal(name, HARDWARE_CLASS, path, value, field or path, message)


def _device(name: str, value: str, message: str) -> Refusal:
    resources = [{"name": value, "count": 1}]
    return _hardware(name, "spec.resources", resources, f"'{value}' {message}", "spec.resources[0].name")


def _toleration(name: str, value: dict[str, Any], message: str) -> Refusal:
    return _hardware(name, "spec.tolerations", [value], message, "spec.tolerations[0]")


_DEVICE = (
    "is not the name of a device resource: write DOMAIN/NAME, for example nvidia.com/gpu; cpu and memory "
    "belong to spec.resources of the InferenceService"
)
_KUBERNETES_DEVICE = (
    "is a name of Kubernetes itself: name the resource that a device plugin offers, for example "
    "nvidia.com/gpu"
)

HARDWARE_REFUSALS = (
    _device("CPU as a device", "cpu", _DEVICE),
    _device("domain without a dot", "nvidia/gpu", _DEVICE),
    _device("device without a name", "nvidia.com/", _DEVICE),
    _device("resource of Kubernetes", "node.kubernetes.io/gpu", _KUBERNETES_DEVICE),
    _device("quota's name", "requests.nvidia.com/gpu", _KUBERNETES_DEVICE),
    _hardware("node label's key", "spec.nodeSelector", {"/a": "b"}, f"'/a' {KEY_MALFORMED}"),
    _hardware("node label's value", "spec.nodeSelector", {"a": "b c"}, f"'b c' {LABEL_VALUE}",
              "spec.nodeSelector[a]"),
    _toleration("value with Exists", {"key": "a", "operator": "Exists", "value": "b"},
                "value 'b' has no meaning with operator Exists: remove it, or write operator Equal"),
    _toleration("Equal without a key", {"operator": "Equal", "value": "b"},
                "operator Equal needs a key: write the key of the taint, or operator Exists to tolerate "
                "every taint"),
    _toleration("seconds without NoExecute", {"key": "a", "operator": "Exists", "tolerationSeconds": 5},
                "tolerationSeconds needs effect NoExecute: remove it, or set the effect"),
    _hardware("RuntimeClass", "spec.runtimeClassName", "NVIDIA", f"'NVIDIA' {OBJECT_NAME}"),
    _hardware("PriorityClass", "spec.priorityClassName", "a b", f"'a b' {OBJECT_NAME}"),
    _hardware("namespace with a dot", "spec.allowedNamespaces", ["a.b"],
              "'a.b' is not a namespace: write lower-case letters, digits and dashes",
              "spec.allowedNamespaces[0]"),
)  # fmt: skip


def _runtime(name: str, path: str, value: Any, message: str, field: str = "") -> Refusal:
    return Refusal(name, RUNTIME, path, value, field or path, message)


def _probe(name: str, kind: str, value: dict[str, Any], message: str, field: str = "") -> Refusal:
    path = f"spec.server.{kind}"
    return _runtime(name, path, value, message, field or path)


_DRAIN = (
    "is out of range: write a duration from 1s to 10m, as long as gateways and slow requests need after a "
    "pod begins to stop"
)
_IMAGE = "is not an image: write a reference without blanks, for example registry.example.com/server:1.2.3"
_PORT = "is not a port: write the name of one of the ports, or a number from 1 to 65535"
_HTTP = {"port": "http"}

RUNTIME_REFUSALS = (
    _runtime("format", "spec.formats", [{"name": "a/b"}], f"'a/b' {FORMAT}", "spec.formats[0].name"),
    _runtime("no drain", "spec.drain", "0s", f"'0s' {_DRAIN}"),
    _runtime("long drain", "spec.drain", "601s", f"'601s' {_DRAIN}"),
    _runtime("drain in words", "spec.drain", "long", f"'long' {DURATION}"),
    _runtime("no image", "spec.server.image", "", f"'' {_IMAGE}"),
    _runtime("image with a blank", "spec.server.image", "a b", f"'a b' {_IMAGE}"),
    _runtime("reserved variable", "spec.server.env", [{"name": "TAILBOUND_X"}],
             f"'TAILBOUND_X' {ENV_RESERVED}", "spec.server.env[0].name"),
    _runtime("no port named http", "spec.server.ports", [{"name": "web", "containerPort": 80}],
             "none of the ports is named http: give this name to the one that serves the Open Inference "
             "Protocol over HTTP", "spec.server"),
    _runtime("port's name", "spec.server.ports",
             [{"name": "http", "containerPort": 80}, {"name": "a--b", "containerPort": 81}],
             "'a--b' is not a port name: write lower-case letters, digits and single dashes, with at least "
             "one letter", "spec.server.ports[1].name"),
    _probe("probe without a way", "readinessProbe", {"periodSeconds": 5},
           "this probe has 0 of httpGet, grpc, tcpSocket and exec: write exactly one"),
    _probe("probe with two ways", "startupProbe", {"httpGet": _HTTP, "tcpSocket": _HTTP},
           "this probe has 2 of httpGet, grpc, tcpSocket and exec: write exactly one"),
    _probe("probe of port 0", "livenessProbe", {"tcpSocket": {"port": 0}}, f"'0' {_PORT}",
           "spec.server.livenessProbe.tcpSocket.port"),
    _probe("probe of a malformed port", "livenessProbe", {"httpGet": {"port": "HTTP"}}, f"'HTTP' {_PORT}",
           "spec.server.livenessProbe.httpGet.port"),
    _probe("two successes of liveness", "livenessProbe", {"tcpSocket": _HTTP, "successThreshold": 2},
           "livenessProbe.successThreshold is 2, and Kubernetes allows only 1 here: remove it",
           "spec.server"),
    _probe("two successes of startup", "startupProbe", {"tcpSocket": _HTTP, "successThreshold": 2},
           "startupProbe.successThreshold is 2, and Kubernetes allows only 1 here: remove it", "spec.server"),
)  # fmt: skip
