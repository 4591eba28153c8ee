"""InferenceService: one model, what it needs and how fast it must answer."""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Final

from pydantic import Field, StrictBool, StrictInt, StringConstraints, ValidationError, field_validator

from tailbound.api.batching import Batching
from tailbound.api.conditions import ConditionType
from tailbound.api.meta import DNS_LABEL, Condition, EnvVar, ObjectMeta, ObjectName, PodAnnotations, PodLabels
from tailbound.api.quantities import (
    Duration,
    Percentage,
    Quantity,
    duration_between,
    percentage_within,
    quantity_between,
)
from tailbound.api.rollout import RolloutSpec, RolloutStatus
from tailbound.api.scaling import Scaling, ScalingStatus
from tailbound.api.schema import SET, InOrder, Model, Rule, list_map, matches
from tailbound.api.servingruntime import FormatName
from tailbound.api.traffic import TrafficStatus

DEFAULT_TIMEOUT: Final = Duration(30_000)
"""The timeout of services without a latency target."""
MOST_CONDITIONS: Final = 32
"""The most conditions of a status, those of other managers included."""
_TIMEOUT_PER_P99: Final = 20
_LOWEST_DEFAULT_TIMEOUT_MS: Final = 1_000
_HIGHEST_DEFAULT_TIMEOUT_MS: Final = 300_000

_SERVICE_NAME: Final = "[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?"
_URL: Final = r"https?://(?:[A-Za-z0-9](?:[-_A-Za-z0-9.]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?(?:[/?][!-\"$-~]*)?"

ModelUri = Annotated[
    str,
    StringConstraints(max_length=2048),
    InOrder(
        matches(
            r"https?://(?s:.*)",
            "'{value}' cannot be fetched: the schemes supported now are http and https, write for example "
            "https://models.example.com/churn.onnx",
        ),
        matches(
            r"https?://[^/?#@]*(?:[/?#](?s:.*))?",
            "'{value}' holds credentials, which everyone who may read this object would see: remove the part "
            "before the @",
        ),
        matches(
            _URL,
            "'{value}' is not the URL of a file: write a scheme, a host and a path without blanks, for "
            "example https://models.example.com/churn.onnx",
        ),
    ),
]

Host = Annotated[
    str,
    StringConstraints(max_length=253),
    InOrder(
        matches(
            r"[^*]*",
            "'{value}' is a wildcard, which would take requests that belong to other services: list every "
            "host by its full name",
        ),
        Rule(
            cel="!self.endsWith('.svc') && !self.contains('.svc.')",
            holds=lambda host: not host.endswith(".svc") and ".svc." not in host,
            message="'{value}' is the name of a Service of the cluster, and Tailbound answers to this "
            "service's own ones without being told: remove it",
        ),
        matches(
            rf"(?:{DNS_LABEL}\.)+[a-z](?:[-a-z0-9]{{0,61}}[a-z0-9])?",
            "'{value}' is not a host that can be answered to: write a full DNS name with a dot, in lower "
            "case and without port, for example churn.example.com",
        ),
    ),
]

Cpu = Annotated[Quantity, quantity_between("1m", "1k", "a number of CPUs, for example 2 or 500m")]
Memory = Annotated[
    Quantity, quantity_between("1Mi", "1Pi", "an amount of memory with its unit, for example 4Gi")
]


class ModelSource(Model):
    """Where the model comes from, and what it is."""

    why_required: ClassVar[Mapping[str, str]] = {
        "sha256": "sha256 is required, because pinning the bytes is what makes a rollback exact: write the "
        "digest of the file as 64 lower-case hexadecimal digits, as sha256sum FILE prints it"
    }

    uri: ModelUri
    """URL of the model file, http or https."""

    format: FormatName
    """Format of the file, for example onnx. It chooses the runtime."""

    sha256: Annotated[
        str,
        StringConstraints(max_length=128),
        matches(
            "[0-9a-f]{64}",
            "'{value}' is not a SHA-256 digest: write 64 lower-case hexadecimal digits, as sha256sum FILE "
            "prints them",
        ),
    ]
    """SHA-256 digest of the file. Every replica verifies it: a rollback serves exactly what ran before."""


class RuntimeReference(Model):
    """The runtime that serves the model."""

    name: ObjectName
    """Name of a ServingRuntime in the namespace, or else of a ClusterServingRuntime."""


class Hardware(Model):
    """The hardware that serves the model."""

    classes: Annotated[
        tuple[ObjectName, ...],
        Field(alias="class", max_length=16),
        SET,
        Rule(
            cel="self.size() <= 1",
            holds=lambda classes: len(classes) <= 1,
            message="class lists {value} hardware classes, and only one can serve now: keep one",
            value_cel="self.size()",
            value=len,
        ),
    ] = ()
    """Name of a HardwareClass, at most one. Without it, the default class serves."""


class Resources(Model):
    """CPUs and memory of each pod, requests and limits alike. Devices come from the hardware class."""

    cpu: Cpu = Quantity.parse("1")
    """CPUs, for example 2 or 500m."""

    memory: Memory = Quantity.parse("2Gi")
    """Memory with its unit, for example 4Gi."""


class Latency(Model):
    """How fast requests must be answered."""

    p99: Annotated[
        Duration, duration_between("1ms", "1h", "within which 99 of 100 requests must be answered")
    ]
    """Time within which 99 of 100 requests must be answered, as measured at the gateway."""


class ServiceLevel(Model):
    """What the service promises."""

    latency: Latency | None = None
    """How fast requests must be answered."""

    error_rate: (
        Annotated[Percentage, percentage_within("0%", "50%", "the share of requests that may fail")] | None
    ) = None
    """The share of requests that may fail, for example 0.1%."""


class Overload(StrEnum):
    """What becomes of requests that would be answered late."""

    QUEUE = "queue"
    SHED = "shed"


class SecretReference(Model):
    """A Secret in the namespace."""

    name: ObjectName
    """Name of the Secret."""


class InferenceServiceSpec(Model):
    """What is wanted."""

    rules = (
        Rule(
            cel="!has(self.scaling.max) || self.scaling.max <= self.scaling.min "
            "|| self.scaling.mode != 'auto' || (has(self.sla) && has(self.sla.latency))",
            holds=lambda spec: not spec.scaling.automatic or spec.sla.latency is not None,
            message="scaling.max is above scaling.min, and what decides between them is how fast requests "
            "must be answered: set spec.sla.latency.p99, or remove spec.scaling.max, or hand the decision to "
            "a HorizontalPodAutoscaler with spec.scaling.mode external",
        ),
        Rule(
            cel="self.overload != 'shed' || (has(self.sla) && has(self.sla.latency))",
            holds=lambda spec: spec.overload is not Overload.SHED or spec.sla.latency is not None,
            message="overload is shed, and without a target no request is late: set spec.sla.latency.p99, or "
            "write overload queue",
        ),
    )

    model: ModelSource
    """Where the model comes from, and what it is."""

    runtime: RuntimeReference | None = None
    """The runtime that serves the model. Without it, one is chosen by the model's format."""

    hardware: Hardware = Hardware()
    """The hardware that serves the model."""

    resources: Resources = Resources()
    """CPUs and memory of each serving pod."""

    batching: Batching = Batching()
    """How requests share runs of the model."""

    timeout: (
        Annotated[Duration, duration_between("1ms", "1h", "which the gateway gives to one request")] | None
    ) = None
    """Time that the gateway gives one request. Without it: 20 times the P99 target, at least 1s and at most
    5m; 30s without a target."""

    hosts: Annotated[tuple[Host, ...], Field(max_length=16), SET] = ()
    """Further names that the gateway answers to, beside NAME.NAMESPACE.svc."""

    sla: ServiceLevel = ServiceLevel()
    """What the service promises."""

    overload: Overload = Overload.QUEUE
    """queue: every request waits, up to the timeout. shed: the server refuses, with a 503 and Retry-After,
    what it could only answer later than sla.latency.p99. What is refused counts as late. Over gRPC, requests
    wait in any case."""

    scaling: Scaling = Scaling()
    """How many pods serve."""

    rollout: RolloutSpec = RolloutSpec()
    """How a new revision takes over, and when it does not."""

    env: Annotated[tuple[EnvVar, ...], Field(max_length=64), list_map("name")] = ()
    """Environment of the server, beside what the runtime sets. Of one name in both, this one counts."""

    labels: PodLabels = Field(default_factory=dict)
    """Labels of the serving pods."""

    annotations: PodAnnotations = Field(default_factory=dict)
    """Annotations of the serving pods."""

    service_account_name: ObjectName | None = None
    """ServiceAccount of the serving pods. Without it, the namespace's default."""

    image_pull_secrets: Annotated[tuple[SecretReference, ...], Field(max_length=16), list_map("name")] = ()
    """Secrets with which the node pulls the images."""

    stopped: StrictBool = False
    """No pods: the service keeps its revisions and answers 503."""

    def effective_timeout(self) -> Duration:
        """The time that the gateway gives one request, whether given or derived."""
        return effective_timeout(self.timeout, self.sla)


def effective_timeout(timeout: Duration | None, sla: ServiceLevel) -> Duration:
    """spec.timeout, or what follows from spec.sla without one."""
    if timeout is not None:
        return timeout
    if sla.latency is None:
        return DEFAULT_TIMEOUT
    wanted = _TIMEOUT_PER_P99 * sla.latency.p99.milliseconds
    return Duration(min(max(wanted, _LOWEST_DEFAULT_TIMEOUT_MS), _HIGHEST_DEFAULT_TIMEOUT_MS))


class RevisionStatus(Model):
    """One revision and its pods."""

    revision: Annotated[str, StringConstraints(max_length=63)]
    """Name of the ControllerRevision, and of its Deployment and Service."""

    replicas: Annotated[StrictInt, Field(ge=0)] = 0
    """Pods that exist."""

    ready: Annotated[StrictInt, Field(ge=0)] = 0
    """Pods that are ready."""

    weight: Annotated[StrictInt, Field(ge=0, le=100)] = 0
    """Percent of the requests that it is to get."""


class RoutingStatus(Model):
    """The fields of the spec that gateways follow, as they are and since when."""

    digest: Annotated[str, StringConstraints(max_length=32)]
    """Digest of the values of these fields."""

    generation: Annotated[StrictInt, Field(ge=0)]
    """The metadata.generation that brought them: gateways have to have seen this one, and no later one."""


class InferenceServiceStatus(Model):
    """What was observed."""

    observed_generation: Annotated[StrictInt, Field(ge=0)] = 0
    """The metadata.generation that this status describes."""

    url: Annotated[str, StringConstraints(max_length=512)] = ""
    """Where the service answers inside the cluster."""

    traffic: TrafficStatus | None = None
    """How requests are shared among revisions; gateways follow it."""

    routing: RoutingStatus | None = None
    """The digest of what gateways follow besides the traffic."""

    stable: RevisionStatus | None = None
    """The revision that serves."""

    canary: RevisionStatus | None = None
    """The revision that is to replace it, while it is on its way."""

    rollout: RolloutStatus | None = None
    """The last rollout: under way, or how it ended."""

    scaling: ScalingStatus | None = None
    """What the pods are sized by, where they follow the traffic."""

    serving_pods: Annotated[str, StringConstraints(max_length=32)] = ""
    """Ready and wanted pods of the revisions that get requests, for example 3/4."""

    replicas: Annotated[StrictInt, Field(ge=0)] = 0
    """Pods that exist, of all revisions."""

    selector: Annotated[str, StringConstraints(max_length=512)] = ""
    """Selects these pods; for the scale subresource."""

    conditions: Annotated[tuple[Condition, ...], Field(max_length=MOST_CONDITIONS), list_map("type")] = ()
    """Ready, and what stands in its way."""

    @field_validator("rollout", mode="wrap")
    @classmethod
    def _unreadable_rollout_is_none(cls, raw: Any, handler: Any) -> Any:
        """Keep the traffic where a newer operator's rollout, or one broken by hand, cannot be read."""
        try:
            return handler(raw)
        except ValidationError:
            return None

    def condition(self, kind: ConditionType) -> Condition | None:
        """The condition of this type, or None if it was never written."""
        return next((condition for condition in self.conditions if condition.type == kind), None)


class InferenceService(Model):
    """InferenceService declares one model, the hardware that it needs and how fast it must answer.

    Deleting it ends the service: gateways answer 421 for its hosts at once, and its pods end. After
    kubectl delete --cascade=orphan the pods stay, without requests, until an InferenceService of this name is
    applied again: it takes over pods and history as they are, and nothing restarts.
    """

    rules = (
        Rule(
            cel=f"self.metadata.name.matches('^{_SERVICE_NAME}$')",
            holds=lambda service: re.fullmatch(_SERVICE_NAME, service.metadata.name) is not None,
            message="metadata.name '{value}' cannot be used, because a Kubernetes Service of this name is "
            "made: write at most 63 lower-case letters, digits and dashes, with a letter in front and no "
            "dash at the end",
            value_cel="self.metadata.name",
            value=lambda service: service.metadata.name,
            on_create_only=True,
        ),
    )

    metadata: ObjectMeta
    spec: InferenceServiceSpec
    status: InferenceServiceStatus = InferenceServiceStatus()

    @field_validator("status", mode="wrap")
    @classmethod
    def _unreadable_status_is_none(cls, raw: Any, handler: Any) -> Any:
        """Take a status that does not validate for one never written: it is derived again."""
        try:
            return handler(raw)
        except ValidationError:
            return InferenceServiceStatus()
