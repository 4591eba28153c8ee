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
    "nvidia.com/gpu, or deviceclass.resource.kubernetes.io/ and a DeviceClass"
)

HARDWARE_REFUSALS = (
    _device("CPU as a device", "cpu", _DEVICE),
    _device("domain without a dot", "nvidia/gpu", _DEVICE),
    _device("device without a name", "nvidia.com/", _DEVICE),
    _device("resource of Kubernetes", "node.kubernetes.io/gpu", _KUBERNETES_DEVICE),
    _device("quota's name", "requests.nvidia.com/gpu", _KUBERNETES_DEVICE),
    _hardware("too many devices", "spec.resources", [{"name": "nvidia.com/gpu", "count": 8000}],
              "count is 8000, and a pod has at most 1024 devices of a kind: lower it, or write unit Other if "
              "this resource counts no devices, but for example memory", "spec.resources[0]"),
    _hardware("memory of a device", "spec.deviceMemory", "40k",
              "'40k' is out of range: write an amount of memory with its unit, for example 40Gi, from 1M to "
              "1P"),
    _hardware("price with a currency", "spec.price.perHour", "1.25 EUR",
              "'1.25 EUR' is not a price: write a number of at most six decimals without a currency, in "
              'quotes, for example "1.25"'),
    _hardware("price of no device", "spec", {"price": {"perHour": "1", "unit": "Device"}},
              "price.unit is Device, and the pods of this class have no devices: write CPU or Pod"),
    _hardware("memory of no device", "spec", {"deviceMemory": "40Gi"},
              "deviceMemory is 40Gi, and the pods of this class have no devices: add resources or "
              "resourceClaim, or remove deviceMemory"),
    _hardware("more devices than a claim has", "spec.resourceClaim",
              {"requests": [{"name": name, "deviceClass": "a", "count": 20} for name in "ab"]},
              "the requests ask for 40 devices in all, and a claim has at most 32: lower a count"),
    _hardware("request's name", "spec.resourceClaim", {"requests": [{"name": "A", "deviceClass": "a"}]},
              "'A' is not the name of a request: write lower-case letters, digits and dashes",
              "spec.resourceClaim.requests[0].name"),
    _hardware("node label's key", "spec.nodeSelector", {"/a": "b"}, f"'/a' {KEY_MALFORMED}"),
    _hardware("node label's value", "spec.nodeSelector", {"a": "b c"}, f"'b c' {LABEL_VALUE}",
              "spec.nodeSelector[a]"),
    _toleration("value with Exists", {"key": "a", "operator": "Exists", "value": "b"},
                "value 'b' has no effect with operator Exists: remove it, or write operator Equal"),
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
_PATH = (
    "is not a path: write it from its first slash on and without query, with one * in a part that varies, "
    "for example /v1/tasks/*/predict, {model} in the part that names the model, or /predict/** for all paths "
    "below /predict/"
)
_HIDES = (
    "would hide a folder that the pod needs, because the folder of a file is mounted as a whole: choose a "
    "folder of its own, for example /etc/server/config.yaml"
)
_KEY = {"name": "a", "key": "b"}
_HTTP = {"port": "http"}


def _init(name: str, fields: dict[str, Any], message: str, field: str = "") -> Refusal:
    containers = [{"name": "a", "image": "a:1", **fields}]
    return _runtime(name, "spec.initContainers", containers, message, f"spec.initContainers[0]{field}")


def _metrics(name: str, fields: dict[str, Any], message: str, field: str = "") -> Refusal:
    """A refused mapping of metrics; a field that is None is absent."""
    metrics = {"requests": "r", "requestTime": ["s"], **fields}
    written = {key: value for key, value in metrics.items() if value is not None}
    return _runtime(name, "spec.metrics", written, message, f"spec.metrics{field}")


def _mount(path: str) -> dict[str, str]:
    return {"name": "a", "mountPath": path}


def _mounted(
    name: str, mounts: list[dict[str, str]], message: str, field: str = "", **fields: Any
) -> Refusal:
    """Refused mounts of a volume in the server."""
    volume = {"name": "a", "emptyDir": {"sizeLimit": "1Mi"}}
    server = {**RUNTIME["spec"]["server"], "volumeMounts": mounts}
    spec = {**RUNTIME["spec"], "volumes": [volume], "server": server, **fields}
    return _runtime(name, "spec", spec, message, f"spec{field}")


_IN_THE_WAY = (
    "whose folder is that of another mount, or around or in it, so that no pod would start: give these "
    "files a folder of their own"
)
_METRIC = (
    "is not a metric: write its name, and up to four labels that it must have, for example requests_total or "
    'requests_total{model="churn",code="200"}'
)
_TIME = (
    "these metrics need the time that inference takes, once: write batchTime, the sum over all batches, or "
    "requestTime, the sum over all requests"
)
_USER = "write the number of a user from 1 to 2147483647"

RUNTIME_REFUSALS = (
    _init("init container in the place of ours", {"name": "fetch"},
          "'fetch' is the name of a container of Tailbound's: choose another name", ".name"),
    _init("init container's name", {"name": "A"},
          "'A' is not the name of a container: write lower-case letters, digits and dashes", ".name"),
    _init("probe of what ends", {"startupProbe": {"tcpSocket": {"port": 80}}},
          "a has a probe but no restartPolicy Always: what ends before the server is not probed, remove the "
          "probe or make it a sidecar"),
    _init("named port of a sidecar", {"restartPolicy": "Always", "livenessProbe": {"httpGet": _HTTP}},
          "livenessProbe names a port, and this container has no ports with names: write the number"),
    _init("sidecar's memory", {"resources": {"memory": "1k"}},
          "'1k' is out of range: write an amount of memory with its unit, for example 4Gi, from 1Mi to 1Pi",
          ".resources.memory"),
    _runtime("mount of no volume in a sidecar", "spec.initContainers",
             [{"name": "a", "image": "a:1", "volumeMounts": [{"name": "b", "mountPath": "/b"}]}],
             "initContainers has a, which mounts a volume that is not in volumes: add the volume, or remove "
             "the mount", "spec"),
    *(_runtime(f"sidecar at the server's port, {way}", "spec.initContainers",
               [{"name": "a", "image": "a:1", "restartPolicy": "Always", probe: {way: {"port": 8000}}}],
               "initContainers has a, whose probe asks a port of server.ports, and the containers of a pod "
               "share their ports, so that only one of the two could listen: give the sidecar a port of its "
               "own", "spec")
      for probe, way in (
          ("startupProbe", "httpGet"), ("livenessProbe", "tcpSocket"), ("livenessProbe", "grpc"))),
    _runtime("root", "spec.securityContext", {"runAsUser": 0}, f"runAsUser is 0: {_USER}",
             "spec.securityContext.runAsUser"),
    _runtime("root's group", "spec.securityContext", {"runAsGroup": 0},
             "runAsGroup is 0: write the number of a group from 1 to 2147483647",
             "spec.securityContext.runAsGroup"),
    _runtime("root's files", "spec.securityContext", {"fsGroup": 0},
             "fsGroup is 0: write the number of a group from 1 to 2147483647",
             "spec.securityContext.fsGroup"),
    _init("two successes of a sidecar's start",
          {"restartPolicy": "Always", "startupProbe": {"tcpSocket": {"port": 80}, "successThreshold": 2}},
          "startupProbe.successThreshold is 2, and Kubernetes allows only 1 here: remove it"),
    _init("named port of a sidecar's start",
          {"restartPolicy": "Always", "startupProbe": {"tcpSocket": _HTTP}},
          "startupProbe names a port, and this container has no ports with names: write the number"),
    _runtime("hook with two ways", "spec.server.preStop",
             {"exec": {"command": ["a"]}, "httpGet": _HTTP}, "write exactly one of exec and httpGet"),
    _runtime("hook beside a hold", "spec",
             {**RUNTIME["spec"], "drain": {"mode": "hold"},
              "server": {**RUNTIME["spec"]["server"], "preStop": {"exec": {"command": ["a"]}}}},
             "server.preStop is set, and drain.mode hold needs the preStop hook itself: remove one of the "
             "two"),
    _runtime("format", "spec.formats", [{"name": "a/b"}], f"'a/b' {FORMAT}", "spec.formats[0].name"),
    _runtime("no drain", "spec.drain.time", "0s", f"'0s' {_DRAIN}"),
    _runtime("long drain", "spec.drain.time", "601s", f"'601s' {_DRAIN}"),
    _runtime("drain in words", "spec.drain.time", "long", f"'long' {DURATION}"),
    _runtime("volume without a source", "spec.volumes", [{"name": "a"}],
             "this volume has 0 of emptyDir, configMap, secret and persistentVolumeClaim: write exactly one",
             "spec.volumes[0]"),
    _runtime("volume with two sources", "spec.volumes",
             [{"name": "a", "secret": {"secretName": "a"}, "configMap": {"name": "a"}}],
             "this volume has 2 of emptyDir, configMap, secret and persistentVolumeClaim: write exactly one",
             "spec.volumes[0]"),
    _runtime("unlimited memory", "spec.volumes", [{"name": "a", "emptyDir": {"sizeLimit": "1k"}}],
             "'1k' is out of range: write an amount with its unit, for example 2Gi, from 1Mi to 1Pi",
             "spec.volumes[0].emptyDir.sizeLimit"),
    _runtime("mount of no volume", "spec.server.volumeMounts", [{"name": "a", "mountPath": "/a"}],
             "server.volumeMounts names a, and there is no such volume in volumes: add it, or remove the "
             "mount", "spec"),
    _runtime("mount over the model", "spec",
             {**RUNTIME["spec"], "volumes": [{"name": "a", "configMap": {"name": "a"}}],
              "server": {**RUNTIME["spec"]["server"],
                         "volumeMounts": [{"name": "a", "mountPath": "/mnt/models/a"}]}},
             "'/mnt/models/a' is Tailbound's: /mnt/models holds the model and /tmp is the writable scratch "
             "space; choose another path", "spec.server.volumeMounts[0].mountPath"),
    _runtime("file in a folder of the image", "spec.files", [{"path": "/etc/a.yaml", "content": ""}],
             f"'/etc/a.yaml' {_HIDES}", "spec.files[0].path"),
    _runtime("file in the way to the model", "spec.files", [{"path": "/mnt/a.yaml", "content": ""}],
             f"'/mnt/a.yaml' {_HIDES}", "spec.files[0].path"),
    _mounted("mount over the image", [_mount("/usr")],
             "'/usr' would hide what every container needs: choose another path, for example /opt/cache",
             ".server.volumeMounts[0].mountPath"),
    _mounted("mount around the model", [_mount("/mnt")],
             "'/mnt' would hide what every container needs: choose another path, for example /opt/cache",
             ".server.volumeMounts[0].mountPath"),
    _mounted("mount in proc", [_mount("/proc/sys")],
             "'/proc/sys' would hide what every container needs: choose another path, for example /opt/cache",
             ".server.volumeMounts[0].mountPath"),
    _mounted("two mounts at a path", [_mount("/a"), _mount("/a")],
             "volumeMounts has two volumes at /a: give each a path of its own", ".server"),
    *(_mounted(f"mount {where} a file", [_mount(path)],
               f"files has /a/b/c, {_IN_THE_WAY}", files=[{"path": "/a/b/c", "content": ""}])
      for where, path in (("at the folder of", "/a/b"), ("under the folder of", "/a/b/c"), ("around", "/a"))),
    _runtime("file in a file", "spec.files",
             [{"path": "/a/b", "content": ""}, {"path": "/a/b/c", "content": ""}],
             f"files has /a/b, {_IN_THE_WAY}", "spec"),
    _runtime("file with a way up", "spec.files", [{"path": "/etc/../a", "content": ""}],
             "'/etc/../a' is not a path: write an absolute path of letters, digits, '-', '_' and '.', "
             "without '..' and without a slash at the end", "spec.files[0].path"),
    _runtime("file in the root", "spec.files", [{"path": "/a.yaml", "content": ""}],
             f"'/a.yaml' {_HIDES}", "spec.files[0].path"),
    _runtime("file beside the model", "spec.files", [{"path": "/mnt/models/a", "content": ""}],
             f"'/mnt/models/a' {_HIDES}", "spec.files[0].path"),
    _runtime("variable with two values", "spec.server.env",
             [{"name": "A", "value": "b", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}],
             "A has both value and valueFrom: remove one of the two", "spec.server.env[0]"),
    _runtime("volume with a capital", "spec.volumes", [{"name": "A", "configMap": {"name": "a"}}],
             "'A' is not the name of a volume: write lower-case letters, digits and dashes",
             "spec.volumes[0].name"),
    _runtime("key with a slash", "spec.server.env",
             [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "a", "key": "a/b"}}}],
             "'a/b' is not a key: write letters, digits, '-', '_' and '.'",
             "spec.server.env[0].valueFrom.secretKeyRef.key"),
    _runtime("variable with two sources", "spec.server.env",
             [{"name": "A", "valueFrom": {"secretKeyRef": _KEY, "configMapKeyRef": _KEY}}],
             "write exactly one of secretKeyRef and configMapKeyRef", "spec.server.env[0].valueFrom"),
    _runtime("no protocol", "spec.protocols", [],
             "protocols is empty, so that no request would count as an inference call: name a protocol, or "
             "write custom, and the paths of the server's own in inferencePaths", "spec"),
    _runtime("custom without a path", "spec.protocols", ["custom"],
             "protocols has custom, and inferencePaths is empty: write the paths of the inference calls of "
             "the server there, for example /models/{model}/answer, or remove custom", "spec"),
    _runtime("two names of the model", "spec.inferencePaths", ["/{model}/a/{model}"],
             "'/{model}/a/{model}' has {model} in several parts, and a request names one model: write * in "
             "the other parts", "spec.inferencePaths[0]"),
    *(_runtime(f"metadata at {path}", "spec.metadataPath", path,
               f"'{path}' is not the path of metadata: write it from its first slash on and without query, "
               "with {model} for the name of the model, for example /models/{model}/schema")
      for path in ("models", "/models/*", "/{model}/{model}", "/models?x=1")),
    _runtime("path without a slash", "spec.inferencePaths", ["predict"], f"'predict' {_PATH}",
             "spec.inferencePaths[0]"),
    _runtime("two stars amid a path", "spec.inferencePaths", ["/a/**/b"], f"'/a/**/b' {_PATH}",
             "spec.inferencePaths[0]"),
    _runtime("path with a query", "spec.inferencePaths", ["/a?b=c"], f"'/a?b=c' {_PATH}",
             "spec.inferencePaths[0]"),
    _metrics("metric with a function", {"requests": "rate(a[1m])"},
             f"'rate(a[1m])' {_METRIC}", ".requests"),
    _metrics("metric with its name as a label", {"requests": 'a{__name__="b"}'},
             f"'a{{__name__=\"b\"}}' {_METRIC}", ".requests"),
    _metrics("metrics of another service", {"queue": 'a{service="b"}'},
             "'a{service=\"b\"}' has a label that Prometheus sets itself, and only metrics of the pods with "
             "this runtime are read: remove it, or write exported_ before it for the label that the server "
             "sets", ".queue"),
    _metrics("time twice", {"batches": "b", "batchTime": ["c"]}, _TIME),
    _metrics("no time", {"requestTime": None}, _TIME),
    _metrics("time of batches alone", {"requestTime": None, "batchTime": ["c"]},
             "batchTime is the time of all batches together, and without batches it is not known how many "
             "these are: add batches, or write requestTime"),
    _metrics("metrics elsewhere", {"path": "http://a/metrics"},
             "'http://a/metrics' is not the path of metrics: write it from its first slash on, for example "
             "/metrics", ".path"),
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
