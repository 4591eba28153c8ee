"""What is refused in an InferenceService, its model left to `model`."""

from typing import Any

from tests.api_cases.objects import SERVICE
from tests.api_cases.refusal import (
    DURATION,
    ENV_RESERVED,
    KEY_MALFORMED,
    LABEL_VALUE,
    OBJECT_NAME,
    Refusal,
    quoted,
    service,
)

_KEY_OF_PLUGIN = (
    "is not allowed: a plugin or webhook of the cluster that acts on it could give the pods another network, "
    "sandbox, identity or container than those that Tailbound checks, remove it; administrators set such "
    "things for the namespace or in the plugin"
)
_KEY_RESERVED = (
    "is reserved: app.kubernetes.io/managed-by and keys of tailbound.dev are set by Tailbound, "
    "choose another key"
)
_DISK = "is out of range: write an amount of disk with its unit, for example 50Gi, from 64Mi to 1Pi"
_HOST = (
    "is not a host that can be answered to: write a full DNS name with a dot, in lower case and without "
    "port, for example churn.example.com"
)
_CLUSTER_HOST = (
    "is the name of a Service of the cluster, and Tailbound answers to the names of this service by "
    "itself: remove it"
)
_TIMEOUT = "is out of range: write a duration from 1ms to 1h, which the gateway gives to one request"
_P99 = "is out of range: write a duration from 1ms to 1h, within which 99 of 100 requests must be answered"
_ERROR_RATE = (
    "is out of range: write a percentage above 0% and at most 50%, the share of requests that may fail"
)
_LEAST_ERROR_RATE = (
    "is out of range: write a percentage above 0% and at most 50%, that a new revision is proven to stay "
    "below"
)
_WEIGHT = "write a percentage of the requests from 1 to 99"
_RISE = "do not rise from step to step: write each one greater than the one before, for example 5, 25, 50"
_NO_STEPS = "steps have no effect with strategy {}: remove them, or write strategy canary"
_NO_CAPACITY = (
    "capacity {} has no effect with strategy recreate, which ends all old pods first: remove one of the two"
)
_STEP_TIMES = (
    "is longer than maxStepTime: a step would end before it may pass, shorten minStepTime or lengthen "
    "maxStepTime"
)
_LEAST_STEP = "is out of range: write a duration from 1s to 24h, which a step lasts at least"
_LONGEST_STEP = "is out of range: write a duration from 1s to 168h, after which a step is inconclusive"
_DEADLINE = "is out of range: write a duration from 10s to 24h, within which one more pod must get ready"
_DELAY = "is out of range: write a duration from 0s to 24h, for which the old pods stay after a promotion"
_ASKED = (
    "metric m needs exactly one kind of query: write query alone, or bad and total, or histogram and above"
)
_DATA = "is out of range: write a duration from 10s to 1h, after which missing counters are reported"
_PERCENTAGE = (
    "is not a percentage from 0% to 100%: write a number with at most four decimals and a percent sign, for "
    "example 0.1%"
)
_QUEUE_DELAY = (
    "is out of range: write a duration from 0s to 10s, for which a request may wait for others to join it"
)
_NOTHING_BATCHED = (
    "mode none batches no requests, so that the other fields have no effect: write mode dynamic or static, "
    "or remove them"
)
_STATIC_SIZES = (
    "preferredBatchSizes have no effect with mode static, whose batches all have maxBatchSize rows: remove "
    "them, or write mode dynamic"
)
_BEYOND_MAX = (
    "a preferred batch size is greater than maxBatchSize, which is {}: lower it, or raise maxBatchSize"
)
_SIZES_RISE = (
    "the preferred batch sizes {} do not rise: write each one greater than the one before, for example 4, 8"
)
_CPU = "is out of range: write a number of CPUs, for example 2 or 500m, from 1m to 1k"
_MEMORY = "is out of range: write an amount of memory with its unit, for example 4Gi, from 1Mi to 1Pi"
_QUANTITY = "is not a quantity: write a number and a unit, for example 500m or 4Gi"
_NO_TARGET = (
    "scaling.max is above scaling.min, and the number of pods between them follows the latency target: set "
    "spec.sla.latency.p99, or remove spec.scaling.max, or set spec.scaling.mode to external for a "
    "HorizontalPodAutoscaler"
)
_NEVER_LATE = (
    "overload is shed, which needs a latency target: set spec.sla.latency.p99, or write overload queue"
)
_SCALING = "write a number of pods from 1 to 1000; to stop the service, set spec.stopped to true"
_NAME = (
    "cannot be used, because a Kubernetes Service of this name is created: write at most 63 lower-case "
    "letters, digits and dashes, with a letter in front and no dash at the end"
)
_ENV_NAME = (
    "is not the name of an environment variable: write letters, digits, '_', '-' and '.', beginning "
    "with no digit"
)


def _host(name: str, value: str, message: str) -> Refusal:
    return service(name, "spec.hosts", [value], f"'{value}' {message}", "spec.hosts[0]")


def _rollout(name: str, value: dict[str, Any], message: str) -> Refusal:
    """A wrong combination of fields of spec.rollout."""
    return service(name, "spec.rollout", value, message)


def _batching(name: str, message: str, field: str = "", **batching: Any) -> Refusal:
    """Wrong fields of spec.batching; `field` is what follows after `batching`."""
    return service(name, "spec.batching", batching, message, f"spec.batching{field}")


def _steps(name: str, weights: list[int], message: str, field: str = "") -> Refusal:
    """A canary of wrong weights; `field` is what follows after `steps`."""
    steps = [{"weight": weight} for weight in weights]
    value = {"strategy": "canary", "steps": steps}
    return service(name, "spec.rollout", value, message, f"spec.rollout.steps{field}")


def _metric(title: str, message: str, field: str = "", **metric: Any) -> Refusal:
    """Wrong fields of one of analysis.metrics; `field` is what follows after its place."""
    value = [{"name": "m", **metric}]
    return service(
        title, "spec.rollout.analysis.metrics", value, message, f"spec.rollout.analysis.metrics[0]{field}"
    )


_NEAR = "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution"


def _near(name: str, requirement: dict[str, Any], message: str, field: str = "") -> Refusal:
    """A case of affinity to pods with this condition on a label."""
    term = {"labelSelector": {"matchExpressions": [requirement]}, "topologyKey": "rack"}
    at = f"{_NEAR}[0].labelSelector.matchExpressions[0]{field}"
    return Refusal(name, SERVICE, _NEAR, [term], at, message)


SERVICE_REFUSALS = (
    _near("condition on a bad key", {"key": "/a", "operator": "Exists"}, f"'/a' {KEY_MALFORMED}", ".key"),
    _near(
        "values with Exists",
        {"key": "a", "operator": "Exists", "values": ["b"]},
        "operator Exists does not fit values: In and NotIn need some, Exists and DoesNotExist have none",
    ),
    Refusal(
        "weight of a preference",
        SERVICE,
        "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution",
        [{"weight": 0, "preference": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}],
        "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight",
        "weight is 0: write a weight from 1 to 100",
    ),
    Refusal(
        "skew of nothing",
        SERVICE,
        "spec.topologySpreadConstraints",
        [{"topologyKey": "a", "maxSkew": 0}],
        "spec.topologySpreadConstraints[0].maxSkew",
        "maxSkew is 0: write a difference of pods from 1 to 100",
    ),
    Refusal(
        "two spreads over one label",
        SERVICE,
        "spec.topologySpreadConstraints",
        [{"topologyKey": "a"}, {"topologyKey": "a", "maxSkew": 2}],
        "spec.topologySpreadConstraints",
        "a topologyKey is listed twice: keep one constraint for each",
    ),
    Refusal(
        "name beginning with a digit",
        SERVICE,
        "metadata.name",
        "2churn",
        "",
        f"metadata.name '2churn' {_NAME}",
    ),
    Refusal("name with a dot", SERVICE, "metadata.name", "a.b", "", f"metadata.name 'a.b' {_NAME}"),
    Refusal(
        "name of 64 characters", SERVICE, "metadata.name", "a" * 64, "", f"metadata.name '{'a' * 64}' {_NAME}"
    ),
    quoted("disk of a mebibyte", "spec.resources.ephemeralStorage", "1Mi", _DISK),
    quoted("runtime name", "spec.runtime.name", "Onnx_Runtime", OBJECT_NAME),
    service(
        "nothing to fall back to",
        "spec.hardware",
        {"class": ["gpu"], "fallbackAfter": "1m"},
        "fallbackAfter is 1m, and there is no other class to fall back to: list several in class, or remove "
        "fallbackAfter",
    ),
    service(
        "nothing to return from",
        "spec.hardware",
        {"class": ["gpu"], "return": "whenRoom"},
        "return is whenRoom, and there is no other class to return from: list several in class, or remove "
        "return",
    ),
    service(
        "time of no return",
        "spec.hardware",
        {"class": ["gpu", "cpu"], "returnAfter": "1m"},
        "returnAfter is 1m, and return is not whenRoom: write return: whenRoom, or remove returnAfter",
    ),
    service(
        "fallback at once",
        "spec.hardware",
        {"class": ["gpu", "cpu"], "fallbackAfter": "1s"},
        "'1s' is out of range: write a duration from 5s to 24h, for which pods wait for a node of a "
        "preferred class",
        "spec.hardware.fallbackAfter",
    ),
    service(
        "return at once",
        "spec.hardware",
        {"class": ["gpu", "cpu"], "return": "whenRoom", "returnAfter": "1s"},
        "'1s' is out of range: write a duration from 5s to 24h, for which a preferred class must have had "
        "room",
        "spec.hardware.returnAfter",
    ),
    service("class name", "spec.hardware.class", ["GPU"], f"'GPU' {OBJECT_NAME}", "spec.hardware.class[0]"),
    service("no CPU", "spec.resources.cpu", 0, f"'0' {_CPU}"),
    quoted("negative CPU", "spec.resources.cpu", "-1", _CPU),
    quoted("too many CPUs", "spec.resources.cpu", "2k", _CPU),
    service("memory without a unit", "spec.resources.memory", 4, f"'4' {_MEMORY}"),
    quoted("CPU in words", "spec.resources.cpu", "two", _QUANTITY),
    quoted("memory in small letters", "spec.resources.memory", "4gi", _QUANTITY),
    quoted("no memory", "spec.resources.memory", "0Gi", _MEMORY),
    quoted("timeout without a unit", "spec.timeout", "30", DURATION),
    quoted("timeout with a fraction", "spec.timeout", "1.5s", DURATION),
    quoted("timeout in words", "spec.timeout", "2 s", DURATION),
    quoted("no timeout", "spec.timeout", "0s", _TIMEOUT),
    quoted("long timeout", "spec.timeout", "61m", _TIMEOUT),
    _host("wildcard host", "*.example.com", "is a wildcard, which would take requests that belong to other "
          "services: list every host by its full name"),
    _host("host of a Service", "other.risk.svc", _CLUSTER_HOST),
    _host("host of a Service, in full", "other.risk.svc.cluster.local", _CLUSTER_HOST),
    _host("host in capitals", "Churn.example.com", _HOST),
    _host("host with a port", "churn.example.com:80", _HOST),
    _host("host of one label", "churn", _HOST),
    _host("address for a host", "10.0.0.1", _HOST),
    _host("host with a final dot", "churn.example.com.", _HOST),
    _host("host with an empty label", "churn..com", _HOST),
    _host("host with a long label", f"{'a' * 64}.com", _HOST),
    quoted("P99 without a unit", "spec.sla.latency.p99", "100", DURATION),
    quoted("P99 of nothing", "spec.sla.latency.p99", "0ms", _P99),
    quoted("P99 of a day", "spec.sla.latency.p99", "24h", _P99),
    quoted("error rate without percent sign", "spec.sla.errorRate", "0.1", _PERCENTAGE),
    quoted("error rate above 100 %", "spec.sla.errorRate", "100.1%", _PERCENTAGE),
    quoted("negative error rate", "spec.sla.errorRate", "-1%", _PERCENTAGE),
    quoted("error rate of nothing", "spec.sla.errorRate", "0%", _ERROR_RATE),
    quoted("error rate above one half", "spec.sla.errorRate", "50.1%", _ERROR_RATE),
    *(
        _rollout(f"steps with strategy {strategy}", {"strategy": strategy, "steps": [{"weight": 5}]},
                 _NO_STEPS.format(strategy))
        for strategy in ("blueGreen", "recreate")
    ),
    *(
        _rollout(f"capacity {capacity} with strategy recreate",
                 {"strategy": "recreate", "capacity": capacity}, _NO_CAPACITY.format(capacity))
        for capacity in ("inPlace", "auto")
    ),
    _rollout("steps without a strategy", {"steps": [{"weight": 5}]}, _NO_STEPS.format("blueGreen")),
    _steps("weights that fall", [25, 5, 50], f"the weights [25, 5, 50] {_RISE}"),
    _steps("a weight twice", [5, 5], f"the weights [5, 5] {_RISE}"),
    _steps("weight of nothing", [0, 5], f"weight is 0: {_WEIGHT}", "[0].weight"),
    _steps("weight of everything", [5, 100], f"weight is 100: {_WEIGHT}", "[1].weight"),
    _rollout("step that ends before it may pass", {"minStepTime": "31m"}, f"minStepTime '31m' {_STEP_TIMES}"),
    quoted("short minimum of a step", "spec.rollout.minStepTime", "999ms", _LEAST_STEP),
    service("long minimum of a step", "spec.rollout", {"minStepTime": "25h", "maxStepTime": "26h"},
            f"'25h' {_LEAST_STEP}", "spec.rollout.minStepTime"),
    quoted("minimum of a step in words", "spec.rollout.minStepTime", "soon", DURATION),
    quoted("long maximum of a step", "spec.rollout.maxStepTime", "169h", _LONGEST_STEP),
    quoted("maximum of a step in words", "spec.rollout.maxStepTime", "never", DURATION),
    quoted("short deadline", "spec.rollout.progressDeadline", "9s", _DEADLINE),
    quoted("long deadline", "spec.rollout.progressDeadline", "25h", _DEADLINE),
    quoted("long delay", "spec.rollout.scaleDownDelay", "25h", _DELAY),
    service("no restarts", "spec.rollout.restartLimit", 0,
            "restartLimit is 0: write a number of restarts from 1 to 100"),
    service("too many restarts", "spec.rollout.restartLimit", 101,
            "restartLimit is 101: write a number of restarts from 1 to 100"),
    service("no history", "spec.rollout.historyLimit", 0,
            "historyLimit is 0: write a number of revisions from 1 to 100"),
    service("too much history", "spec.rollout.historyLimit", 101,
            "historyLimit is 101: write a number of revisions from 1 to 100"),
    service("negative warm-up", "spec.rollout.analysis.warmupRequests", -1,
            "warmupRequests is -1: write a number of requests from 0 to 100000"),
    service("long warm-up", "spec.rollout.analysis.warmupRequests", 100_001,
            "warmupRequests is 100001: write a number of requests from 0 to 100000"),
    quoted("no smallest error rate", "spec.rollout.analysis.minErrorRate", "0.0%", _LEAST_ERROR_RATE),
    quoted("large smallest error rate", "spec.rollout.analysis.minErrorRate", "51%", _LEAST_ERROR_RATE),
    quoted("smallest error rate as a number", "spec.rollout.analysis.minErrorRate", "0.01", _PERCENTAGE),
    _metric("nothing asked", _ASKED, max=0.5),
    _metric("asked twice", _ASKED, query="q", bad="b", total="t", max=0.5),
    _metric("half a pair", _ASKED, bad="b", max=0.5),
    _metric("a histogram without an edge", _ASKED, histogram="h_bucket", max=0.5),
    _metric("a histogram beside counters", _ASKED,
            histogram="h_bucket", above=1, bad="b", total="t", max=0.5),
    _metric("a histogram that must be large",
            "metric m has counters: write max, a fraction of bad events, and no range",
            histogram="h_bucket", above=1, min=0.5),
    _metric("no bound", "metric m needs one bound: write max or min", query="q"),
    _metric("two bounds", "metric m needs one bound: write max or min", query="q", max=0.5, min=0.1),
    _metric("bound at the end",
            "the bound of metric m is not within its range: write one between low and high",
            query="q", max=1),
    _metric("fraction that must be large",
            "metric m has counters: write max, a fraction of bad events, and no range",
            bad="b", total="t", min=0.5),
    _metric("empty range", "the range is empty: write low below high", ".range",
            query="q", max=0.5, range={"low": 1, "high": 1}),
    _metric("short interval", "'0s' is out of range: write a duration from 1s to 1h, "
            "between two values of query",
            ".interval", query="q", max=0.5, interval="0s"),
    _metric("bad name", "'My metric' is not a name: write lower-case letters, digits and dashes, for example "
            "accuracy", ".name", name="My metric", query="q", max=0.5),
    quoted("short wait for data", "spec.rollout.analysis.dataTimeout", "9s", _DATA),
    quoted("long wait for data", "spec.rollout.analysis.dataTimeout", "61m", _DATA),
    _batching("empty batches", "maxBatchSize is 0: write a number of rows from 1 to 4096", ".maxBatchSize",
              mode="dynamic", maxBatchSize=0),
    _batching("huge batches", "maxBatchSize is 4097: write a number of rows from 1 to 4096", ".maxBatchSize",
              mode="static", maxBatchSize=4097),
    _batching("empty preferred batches", "a preferred batch size is 0: write a number of rows from 1 to 4096",
              ".preferredBatchSizes[0]", mode="dynamic", preferredBatchSizes=[0]),
    _batching("falling preferred batches", _SIZES_RISE.format("[8, 4]"), ".preferredBatchSizes",
              mode="dynamic", preferredBatchSizes=[8, 4]),
    _batching("preferred batches twice", _SIZES_RISE.format("[4, 4]"), ".preferredBatchSizes",
              mode="dynamic", preferredBatchSizes=[4, 4]),
    _batching("preferred batches beyond the largest", _BEYOND_MAX.format(16),
              mode="dynamic", maxBatchSize=16, preferredBatchSizes=[4, 17]),
    _batching("preferred batches beyond the default", _BEYOND_MAX.format(8),
              mode="dynamic", preferredBatchSizes=[9]),
    _batching("preferred static batches", _STATIC_SIZES, mode="static", preferredBatchSizes=[4]),
    _batching("batch size without a mode", _NOTHING_BATCHED, maxBatchSize=8),
    _batching("delay without batches", _NOTHING_BATCHED, mode="none", maxQueueDelay="1ms"),
    _batching("preferred sizes without batches", _NOTHING_BATCHED, preferredBatchSizes=[4]),
    _batching("long delay of batches", f"'11s' {_QUEUE_DELAY}", ".maxQueueDelay",
              mode="dynamic", maxQueueDelay="11s"),
    service("no replicas", "spec.scaling.min", 0, f"min is 0: {_SCALING}"),
    service("too many replicas", "spec.scaling.min", 1001, f"min is 1001: {_SCALING}"),
    service("no replicas at most", "spec.scaling.max", 0, f"max is 0: {_SCALING}"),
    service("too many replicas at most", "spec.scaling", {"max": 1001, "mode": "external"},
            f"max is 1001: {_SCALING}", "spec.scaling.max"),
    service("no replicas asked for", "spec.scaling.replicas", 0, f"replicas is 0: {_SCALING}"),
    service("too many replicas asked for", "spec.scaling.replicas", 1001, f"replicas is 1001: {_SCALING}"),
    service("nothing to follow the traffic by", "spec.scaling", {"max": 2}, _NO_TARGET, "spec"),
    service("nothing is late and yet refused", "spec.overload", "shed", _NEVER_LATE, "spec"),
    service("fewest and most in the wrong order", "spec.scaling", {"min": 3, "max": 2},
            "max is 2, which is less than min: raise max or lower min"),
    service(
        "reserved variable",
        "spec.env",
        [{"name": "TAILBOUND_MODEL_PATH", "value": "x"}],
        f"'TAILBOUND_MODEL_PATH' {ENV_RESERVED}",
        "spec.env[0].name",
    ),
    service(
        "variable of devices",
        "spec.env",
        [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}],
        "'NVIDIA_VISIBLE_DEVICES' is reserved: the device plugin sets it, ask for devices by spec.hardware",
        "spec.env[0].name",
    ),
    service("variable's name", "spec.env", [{"name": "1A"}], f"'1A' {_ENV_NAME}", "spec.env[0].name"),
    service("reserved label", "spec.labels", {"tailbound.dev/revision": "x"},
            f"'tailbound.dev/revision' {_KEY_RESERVED}"),
    service("reserved label below our domain", "spec.labels", {"a.tailbound.dev/b": "x"},
            f"'a.tailbound.dev/b' {_KEY_RESERVED}"),
    service("managed-by label", "spec.labels", {"app.kubernetes.io/managed-by": "me"},
            f"'app.kubernetes.io/managed-by' {_KEY_RESERVED}"),
    service("malformed label", "spec.labels", {"a/b/c": "x"}, f"'a/b/c' {KEY_MALFORMED}"),
    service("label's value", "spec.labels", {"team": "-risk"}, f"'-risk' {LABEL_VALUE}",
            "spec.labels[team]"),
    service("reserved annotation", "spec.annotations", {"tailbound.dev/x": "y"},
            f"'tailbound.dev/x' {_KEY_RESERVED}"),
    service("annotation that lifts a profile", "spec.annotations",
            {"container.apparmor.security.beta.kubernetes.io/server": "unconfined"},
            "'container.apparmor.security.beta.kubernetes.io/server' is not allowed: AppArmor and seccomp "
            "profiles of serving pods are those of the Pod Security profile restricted, remove it"),
    *(service(f"{field} of a plugin, {key}", f"spec.{field}", {"dapr.io/enabled": "false", key: "x"},
              f"'{key}' {_KEY_OF_PLUGIN}")
      for field, key in (
          ("annotations", "k8s.v1.cni.cncf.io/networks"),
          ("annotations", "io.kubernetes.cri-o.Devices"),
          ("annotations", "cni"),
          ("labels", "sidecar.istio.io/inject"),
      )),
    service("malformed annotation", "spec.annotations", {"Ä": "y"}, f"'Ä' {KEY_MALFORMED}"),
    quoted("ServiceAccount", "spec.serviceAccountName", "Reader", OBJECT_NAME),
    service("pull secret", "spec.imagePullSecrets", [{"name": "a_b"}], f"'a_b' {OBJECT_NAME}",
            "spec.imagePullSecrets[0].name"),
)  # fmt: skip
