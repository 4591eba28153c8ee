"""InferenceService: the declaration of one served model, its resources and its latency target."""

import re
from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field, StrictBool, StrictInt, StringConstraints

from tailbound.api.affinity import Affinity, SpreadConstraints
from tailbound.api.batching import Batching
from tailbound.api.conditions import ConditionType
from tailbound.api.hardware import Hardware, HardwareStatus
from tailbound.api.hosts import HostStatus
from tailbound.api.inference_paths import MOST_PATHS, InferencePath
from tailbound.api.meta import DNS_LABEL, Condition, EnvVar, ObjectMeta, ObjectName, PodAnnotations, PodLabels
from tailbound.api.model_source import ModelSource, SecretReference
from tailbound.api.quantities import Duration, Percentage, Quantity
from tailbound.api.quantity_fields import Cpu, EphemeralStorage, Memory, duration_between, percentage_within
from tailbound.api.rollout import RolloutSpec, RolloutStatus
from tailbound.api.scaling import Scaling, ScalingStatus
from tailbound.api.schema import SET, InOrder, Model, Rule, list_map, matches, unreadable_as
from tailbound.api.traffic import TrafficStatus

DEFAULT_TIMEOUT: Final = Duration(30_000)
"""The timeout of services without a latency target."""
MOST_CONDITIONS: Final = 32
"""The most conditions of a status, those of other managers included."""
_TIMEOUT_PER_P99: Final = 20
_LOWEST_DEFAULT_TIMEOUT_MS: Final = 1_000
_HIGHEST_DEFAULT_TIMEOUT_MS: Final = 300_000

_SERVICE_NAME: Final = "[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?"

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
            message="'{value}' is the name of a Service of the cluster, and Tailbound answers to the names "
            "of this service by itself: remove it",
        ),
        matches(
            rf"(?:{DNS_LABEL}\.)+[a-z](?:[-a-z0-9]{{0,61}}[a-z0-9])?",
            "'{value}' is not a host that can be answered to: write a full DNS name with a dot, in lower "
            "case and without port, for example churn.example.com",
        ),
    ),
]


class RuntimeReference(Model):
    """The runtime that serves the model."""

    name: ObjectName
    """Name of a ServingRuntime in the namespace, or else of a ClusterServingRuntime."""


class Resources(Model):
    """CPUs and memory of each pod, as both requests and limits. Devices come from the hardware class."""

    cpu: Cpu = Quantity.parse("1")
    """CPUs, for example 2 or 500m."""

    memory: Memory = Quantity.parse("2Gi")
    """Memory with its unit, for example 4Gi."""

    ephemeral_storage: EphemeralStorage | None = None
    """Disk for the downloaded model and for what the server writes, with its unit. The model must be smaller.
    Default: a limit of 10Gi, of which 64Mi are requested."""


class Latency(Model):
    """The latency target."""

    p99: Annotated[
        Duration, duration_between("1ms", "1h", "within which 99 of 100 requests must be answered")
    ]
    """Time within which 99 of 100 requests must be answered, measured at the gateway, for example 100ms."""


class ServiceLevel(Model):
    """The service level agreement."""

    latency: Latency | None = None
    """The latency target."""

    error_rate: (
        Annotated[Percentage, percentage_within("0%", "50%", "the share of requests that may fail")] | None
    ) = None
    """The fraction of requests that may fail, for example 0.1%. Without it, a new revision is rejected if
    more than 1% of its requests fail and that is more than 1.5 times the fraction of the stable revision, and
    it passes without a proof."""


class Overload(StrEnum):
    """How the server treats requests that it could only answer late."""

    QUEUE = "queue"
    SHED = "shed"


class InferenceServiceSpec(Model):
    """The desired state."""

    rules = (
        Rule(
            cel="!has(self.scaling.max) || self.scaling.max <= self.scaling.min "
            "|| self.scaling.mode != 'auto' || (has(self.sla) && has(self.sla.latency))",
            holds=lambda spec: not spec.scaling.automatic or spec.sla.latency is not None,
            message="scaling.max is above scaling.min, and the number of pods between them follows the "
            "latency target: set spec.sla.latency.p99, or remove spec.scaling.max, or set "
            "spec.scaling.mode to external for a HorizontalPodAutoscaler",
        ),
        Rule(
            cel="self.overload != 'shed' || (has(self.sla) && has(self.sla.latency))",
            holds=lambda spec: spec.overload is not Overload.SHED or spec.sla.latency is not None,
            message="overload is shed, which needs a latency target: set spec.sla.latency.p99, or write "
            "overload queue",
        ),
    )

    model: ModelSource
    """Location, format and digest of the model."""

    runtime: RuntimeReference | None = None
    """The runtime that serves the model. Default: a runtime for the format of the model."""

    hardware: Hardware = Hardware()
    """The hardware that serves the model."""

    resources: Resources = Resources()
    """CPUs and memory of each serving pod."""

    batching: Batching = Batching()
    """How requests share runs of the model."""

    timeout: (
        Annotated[Duration, duration_between("1ms", "1h", "which the gateway gives to one request")] | None
    ) = None
    """Time after which the gateway ends a request, for example 30s. Default: 20 times the P99 target, at
    least 1s and at most 5m; 30s without a target."""

    hosts: Annotated[tuple[Host, ...], Field(max_length=16), SET] = ()
    """Further host names of the service, besides NAME.NAMESPACE.svc."""

    sla: ServiceLevel = ServiceLevel()
    """The service level agreement."""

    overload: Overload = Overload.QUEUE
    """queue: every request waits, up to the timeout. shed: a request that could only be answered later than
    sla.latency.p99 is refused with status 503 and Retry-After: by the server if spec.sheds of the runtime is
    true, and by the gateways while requests take longer than that and more are in flight than the pods finish
    within that time. A refused request counts as late. gRPC requests always wait."""

    scaling: Scaling = Scaling()
    """Number of serving pods."""

    rollout: RolloutSpec = RolloutSpec()
    """How a new revision takes over, and when it does not."""

    env: Annotated[tuple[EnvVar, ...], Field(max_length=64), list_map("name")] = ()
    """Environment variables of the server. They override those of the runtime with the same name."""

    labels: PodLabels = Field(default_factory=dict)
    """Labels of the serving pods."""

    annotations: PodAnnotations = Field(default_factory=dict)
    """Annotations of the serving pods."""

    service_account_name: ObjectName | None = None
    """ServiceAccount of the serving pods. Default: the ServiceAccount default of the namespace."""

    image_pull_secrets: Annotated[tuple[SecretReference, ...], Field(max_length=16), list_map("name")] = ()
    """Secrets with which the node pulls the images."""

    affinity: Affinity | None = None
    """Affinity of the serving pods to nodes and to pods of the namespace. The nodes are among those of the
    HardwareClass."""

    topology_spread_constraints: SpreadConstraints | None = None
    """How the pods of a revision are spread. Default: over zones and nodes, as evenly as there is room."""

    stopped: StrictBool = False
    """If true, the service has no pods and answers 503; it keeps its revisions."""

    def effective_timeout(self) -> Duration:
        """spec.timeout, or its default."""
        return effective_timeout(self.timeout, self.sla)


def effective_timeout(timeout: Duration | None, sla: ServiceLevel) -> Duration:
    """`timeout`, or the default that follows from `sla`."""
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
    """Number of existing pods."""

    ready: Annotated[StrictInt, Field(ge=0)] = 0
    """Number of ready pods."""

    weight: Annotated[StrictInt, Field(ge=0, le=100)] = 0
    """Percent of the requests that gateways are asked to send to it."""


class RoutingStatus(Model):
    """A digest of the spec fields that gateways read, and the generation since which it is current."""

    digest: Annotated[str, StringConstraints(max_length=32)]
    """Digest of the values of these fields."""

    generation: Annotated[StrictInt, Field(ge=0)]
    """The metadata.generation with which they last changed: gateways must have seen at least this one."""


class InferenceServiceStatus(Model):
    """The observed state."""

    observed_generation: Annotated[StrictInt, Field(ge=0)] = 0
    """The metadata.generation that this status describes."""

    url: Annotated[str, StringConstraints(max_length=512)] = ""
    """URL of the service inside the cluster."""

    traffic: TrafficStatus | None = None
    """Weights of the revisions; gateways apply them."""

    inference_paths: Annotated[tuple[InferencePath, ...], Field(max_length=MOST_PATHS), SET] | None = None
    """Paths of the calls that gateways count; absent for those of the Open Inference Protocol."""

    routing: RoutingStatus | None = None
    """Digest of the spec fields that gateways read."""

    hosts: Annotated[tuple[HostStatus, ...], Field(max_length=16), list_map("host")] | None = None
    """The decision on each entry of spec.hosts. Absent until it was made for the first time."""

    hardware: HardwareStatus | None = None
    """The hardware of the service; absent where nothing is to be said of it."""

    stable: RevisionStatus | None = None
    """The stable revision."""

    canary: RevisionStatus | None = None
    """The candidate that replaces the stable revision, during a rollout."""

    rollout: Annotated[RolloutStatus | None, unreadable_as(lambda: None)] = None
    """The last rollout, either under way or ended."""

    scaling: ScalingStatus | None = None
    """The decisions on the number of pods, if it follows the traffic."""

    serving_pods: Annotated[str, StringConstraints(max_length=32)] = ""
    """Ready and desired pods of the revisions that get requests, for example 3/4."""

    replicas: Annotated[StrictInt, Field(ge=0)] = 0
    """Number of existing pods of all revisions."""

    selector: Annotated[str, StringConstraints(max_length=512)] = ""
    """Label selector of these pods, for the scale subresource."""

    conditions: Annotated[tuple[Condition, ...], Field(max_length=MOST_CONDITIONS), list_map("type")] = ()
    """Conditions: Ready, and further conditions that explain it."""

    def condition(self, kind: ConditionType) -> Condition | None:
        """The condition of this type, or None if it was never written."""
        return next((condition for condition in self.conditions if condition.type == kind), None)


class InferenceService(Model):
    """InferenceService declares one model, the hardware that it needs and its latency target.

    When it is deleted, gateways answer 421 for its hosts at once, and its pods end. After kubectl delete
    --cascade=orphan the pods stay without requests until an InferenceService of this name is applied again:
    it adopts the pods and the history, and no pod restarts.
    """

    rules = (
        Rule(
            cel=f"self.metadata.name.matches('^{_SERVICE_NAME}$')",
            holds=lambda service: re.fullmatch(_SERVICE_NAME, service.metadata.name) is not None,
            message="metadata.name '{value}' cannot be used, because a Kubernetes Service of this name is "
            "created: write at most 63 lower-case letters, digits and dashes, with a letter in front and no "
            "dash at the end",
            value_cel="self.metadata.name",
            value=lambda service: service.metadata.name,
            on_create_only=True,
        ),
    )

    metadata: ObjectMeta
    spec: InferenceServiceSpec
    status: Annotated[InferenceServiceStatus, unreadable_as(InferenceServiceStatus)] = Field(
        default_factory=InferenceServiceStatus
    )
