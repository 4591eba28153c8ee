"""InferenceService: one model, what it needs and how fast it must answer."""

from typing import Annotated, Any, Final

from pydantic import Field, StrictBool, StrictInt, StringConstraints, ValidationError, field_validator

from tailbound.api.conditions import ConditionType
from tailbound.api.meta import DNS_LABEL, Condition, EnvVar, ObjectMeta, ObjectName, PodAnnotations, PodLabels
from tailbound.api.quantities import Duration, Percentage, Quantity, duration_between, quantity_at_least
from tailbound.api.schema import ATOMIC, SET, Model, Rule, list_map, matches
from tailbound.api.servingruntime import FormatName
from tailbound.api.traffic import TrafficStatus

DEFAULT_TIMEOUT: Final = Duration(30_000)
"""Of services without a latency target."""
_TIMEOUT_PER_P99: Final = 20
_LOWEST_DEFAULT_TIMEOUT_MS: Final = 1_000
_HIGHEST_DEFAULT_TIMEOUT_MS: Final = 300_000

_SCHEME: Final = "https?://.*"
_USER_INFO: Final = "[a-z]+://[^/?#]*@.*"
_URI: Final = r"https?://(?:[A-Za-z0-9](?:[-A-Za-z0-9.]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?(?:[/?][!-~]*)?"

ModelUri = Annotated[
    str,
    StringConstraints(max_length=2048),
    matches(
        _SCHEME,
        "'{value}' cannot be fetched: the schemes supported now are http and https, write for example "
        "https://models.example.com/churn.onnx",
    ),
    Rule(
        cel="!self.matches('^[a-z]+://[^/?#]*@')",
        holds=lambda uri: "@" not in uri.partition("://")[2].split("/")[0].split("?")[0].split("#")[0],
        message="'{value}' holds credentials, which everyone who can read this object would see: remove the part before the @",
    ),
    matches(
        _URI,
        "'{value}' is not a URL of a file: write a scheme, a host and a path without blanks, for example "
        "https://models.example.com/churn.onnx",
        unless=f"{_USER_INFO}|(?:[^h]|h[^t]|ht[^t]|htt[^p]|http[^s:]|https[^:]|https?:[^/]|https?:/[^/]).*|.{{0,7}}",
    ),
]

Host = Annotated[
    str,
    StringConstraints(max_length=253),
    matches(
        rf"(?:{DNS_LABEL}\.)+[a-z](?:[-a-z0-9]{{0,61}}[a-z0-9])?",
        "'{value}' is not a host that can be answered to: write a full DNS name in lower case with at least one dot and "
        "without port, for example churn.example.com; a name of one label means a service of the caller's namespace",
        unless=r"\*.*",
    ),
    matches(
        r"[^*].*",
        "'{value}' is a wildcard, which would take the requests of other services: list every host by its full name",
        unless="",
    ),
    Rule(
        cel=r"!self.matches('[.]svc([.].*)?$')",
        holds=lambda host: not (host.endswith(".svc") or ".svc." in host),
        message="'{value}' belongs to a Service of the cluster: Tailbound answers to this service's own cluster names without "
        "being told, remove the entry",
    ),
]


class ModelSource(Model):
    """Where the model comes from, and what it is."""

    why_required = {
        "sha256": "sha256 is required: write the SHA-256 digest of the file as 64 lower-case hexadecimal digits (sha256sum "
        "FILE prints it); pinning the bytes is what makes a rollback exact"
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
            "'{value}' is not a SHA-256 digest: write 64 lower-case hexadecimal digits, as sha256sum FILE prints them",
        ),
    ]
    """SHA-256 digest of the file. Every replica verifies it, so that a rollback serves exactly what ran before."""


class RuntimeReference(Model):
    """The runtime that serves the model."""

    name: ObjectName
    """Name of a ServingRuntime in the namespace, or else of a ClusterServingRuntime."""


class Hardware(Model):
    """The hardware that serves the model."""

    classes: Annotated[tuple[ObjectName, ...], Field(alias="class", max_length=1), ATOMIC] = ()
    """Name of a HardwareClass, at most one. Without it, the default class serves."""


class Resources(Model):
    """CPUs and memory of each serving pod: requests and limits alike. Devices come from the hardware class."""

    cpu: Annotated[Quantity, quantity_at_least("1m", "write a number of CPUs, for example 2 or 500m")] = (
        Quantity.parse("1")
    )
    """CPUs, for example 2 or 500m."""

    memory: Annotated[
        Quantity, quantity_at_least("1Mi", "write an amount of memory with its unit, for example 4Gi")
    ] = Quantity.parse("2Gi")
    """Memory with its unit, for example 4Gi."""


class Latency(Model):
    """How fast requests must be answered."""

    p99: Annotated[
        Duration, duration_between("1ms", "1h", "the time within which 99 of 100 requests must be answered")
    ]
    """Time within which 99 of 100 requests must be answered, as measured at the gateway."""


class ServiceLevel(Model):
    """What the service promises."""

    latency: Latency | None = None
    """How fast requests must be answered."""

    error_rate: Percentage | None = None
    """The share of requests that may fail, for example 0.1%."""


class Scaling(Model):
    """How many pods serve."""

    min: Annotated[
        StrictInt,
        Field(le=1000),
        Rule(
            cel="self >= 1",
            holds=lambda replicas: replicas >= 1,
            message="{value} replicas cannot serve: write at least 1, or set spec.stopped to true to stop the service",
        ),
    ] = 1
    """Number of serving pods."""


class SecretReference(Model):
    """A Secret in the namespace."""

    name: ObjectName
    """Name of the Secret."""


class InferenceServiceSpec(Model):
    """What is wanted."""

    model: ModelSource
    """Where the model comes from, and what it is."""

    runtime: RuntimeReference | None = None
    """The runtime that serves the model. Without it, one is chosen by the model's format."""

    hardware: Hardware = Hardware()
    """The hardware that serves the model."""

    resources: Resources = Resources()
    """CPUs and memory of each serving pod."""

    timeout: (
        Annotated[Duration, duration_between("1ms", "1h", "the time that the gateway gives one request")]
        | None
    ) = None
    """Time that the gateway gives one request. Without it: 20 times the P99 target, at least 1s and at most 5m;
    30s without a target."""

    hosts: Annotated[tuple[Host, ...], Field(max_length=16), SET] = ()
    """Further names that the gateway answers to, beside NAME.NAMESPACE.svc."""

    sla: ServiceLevel = ServiceLevel()
    """What the service promises."""

    scaling: Scaling = Scaling()
    """How many pods serve."""

    env: Annotated[tuple[EnvVar, ...], Field(max_length=64), list_map("name")] = ()
    """Environment of the server, beside what the runtime sets. Of one name in both, this one counts."""

    labels: PodLabels = {}
    """Labels of the serving pods."""

    annotations: PodAnnotations = {}
    """Annotations of the serving pods."""

    service_account_name: ObjectName | None = None
    """ServiceAccount of the serving pods. Without it, the namespace's default."""

    image_pull_secrets: Annotated[tuple[SecretReference, ...], Field(max_length=16), list_map("name")] = ()
    """Secrets with which the node pulls the images."""

    stopped: StrictBool = False
    """No pods: the service keeps its revisions and answers 503."""

    def effective_timeout(self) -> Duration:
        """The time that the gateway gives one request, whether given or derived."""
        if self.timeout is not None:
            return self.timeout
        if self.sla.latency is None:
            return DEFAULT_TIMEOUT
        wanted = _TIMEOUT_PER_P99 * self.sla.latency.p99.milliseconds
        return Duration(min(max(wanted, _LOWEST_DEFAULT_TIMEOUT_MS), _HIGHEST_DEFAULT_TIMEOUT_MS))


class RevisionStatus(Model):
    """One revision and its pods."""

    revision: Annotated[str, StringConstraints(max_length=63)]
    """Name of the ControllerRevision, and of its Deployment and Service."""

    replicas: Annotated[StrictInt, Field(ge=0)] = 0
    """Pods that exist."""

    ready: Annotated[StrictInt, Field(ge=0)] = 0
    """Pods that are ready."""


class InferenceServiceStatus(Model):
    """What was observed."""

    observed_generation: Annotated[StrictInt, Field(ge=0)] = 0
    """The metadata.generation that this status describes."""

    url: Annotated[str, StringConstraints(max_length=512)] = ""
    """Where the service answers inside the cluster."""

    traffic: TrafficStatus | None = None
    """How requests are shared among revisions; gateways follow it."""

    stable: RevisionStatus | None = None
    """The revision that serves."""

    next: RevisionStatus | None = None
    """The revision that is to replace it, while it is on its way."""

    replicas: Annotated[StrictInt, Field(ge=0)] = 0
    """Pods that exist, of all revisions."""

    selector: Annotated[str, StringConstraints(max_length=512)] = ""
    """Selects these pods; for the scale subresource."""

    conditions: Annotated[tuple[Condition, ...], Field(max_length=32), list_map("type")] = ()
    """Ready, and what stands in its way."""

    def condition(self, kind: ConditionType) -> Condition | None:
        """The condition of this type, or None if it was never written."""
        return next((condition for condition in self.conditions if condition.type == kind), None)


class InferenceService(Model):
    """InferenceService declares one model, the hardware and the resources that it needs, and what it must deliver."""

    rules = (
        Rule(
            cel="self.metadata.name.matches('^[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?$')",
            holds=lambda service: _is_service_name(service.metadata.name),
            message="metadata.name '{value}' cannot name a Service: write at most 63 lower-case letters, digits and dashes, "
            "beginning with a letter and ending with a letter or a digit; the name becomes part of the service's address",
            value_cel="self.metadata.name",
            value=lambda service: service.metadata.name,
            field_path=".metadata.name",
            on_create_only=True,
        ),
    )

    metadata: ObjectMeta
    spec: InferenceServiceSpec
    status: InferenceServiceStatus = InferenceServiceStatus()

    @field_validator("status", mode="wrap")
    @classmethod
    def _unreadable_status_is_none(cls, raw: Any, handler: Any) -> Any:
        """A status that somebody broke by hand is one that was never written: it is derived anew, and must not make
        a valid spec invalid."""
        try:
            return handler(raw)
        except ValidationError:
            return InferenceServiceStatus()


def _is_service_name(name: str) -> bool:
    import re

    return re.fullmatch("[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?", name) is not None
