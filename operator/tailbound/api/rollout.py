"""Rollouts in the API: spec.rollout, and status.rollout."""

from decimal import Decimal
from enum import StrEnum
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Final

from pydantic import AwareDatetime, Field, StrictBool, StrictInt, StringConstraints

from tailbound.api.analysis_metric import AnalysisMetric
from tailbound.api.findings import FindingStatus, MetricFindingStatus
from tailbound.api.quantities import DURATION_PATTERN, Duration, Percentage
from tailbound.api.quantity_fields import duration_between, percentage_within
from tailbound.api.schema import ATOMIC, FREE_FORM, Model, Rule, list_map, whole_number

_MOST_STEPS: Final = 16
RevisionName = Annotated[str, StringConstraints(max_length=63)]


class Strategy(StrEnum):
    """How requests move from the stable revision to a new one."""

    BLUE_GREEN = "blueGreen"
    CANARY = "canary"
    RECREATE = "recreate"


class Promotion(StrEnum):
    """Whether a revision that has passed is promoted by the operator or by a user."""

    AUTOMATIC = "automatic"
    MANUAL = "manual"


def previews(strategy: str, promotion: str) -> bool:
    """Whether a candidate waits with all its pods and without requests until a user promotes it."""
    return strategy == Strategy.BLUE_GREEN and promotion == Promotion.MANUAL


class OnInconclusive(StrEnum):
    """What the operator does when a step ends without a verdict."""

    PAUSE = "pause"
    ROLLBACK = "rollback"
    PROMOTE = "promote"


class Capacity(StrEnum):
    """The source of node capacity for the pods of a new revision."""

    SURGE = "surge"
    IN_PLACE = "inPlace"
    AUTO = "auto"


class SignaturePolicy(StrEnum):
    """Which change of the inputs and outputs of a model rejects a new revision."""

    SAME = "same"
    COMPATIBLE = "compatible"
    ANY = "any"


class AnalysisPolicy(StrEnum):
    """Which comparisons reject a new revision."""

    BOTH = "both"
    ABSOLUTE = "absolute"
    RELATIVE = "relative"


class AnalysisSource(StrEnum):
    """The source of the request counts."""

    GATEWAY = "gateway"
    PROMETHEUS = "prometheus"


class Step(Model):
    """One stage of a canary."""

    weight: Annotated[StrictInt, whole_number("weight", 1, 99, "a percentage of the requests")]
    """Percent of the requests that the new revision gets."""


def _rising(steps: tuple[Step, ...]) -> bool:
    return all(earlier.weight < later.weight for earlier, later in pairwise(steps))


_STEPS_RISE: Final = Rule(
    cel="self.map(step, step.weight).isSorted() "
    "&& self.all(step, self.exists_one(other, other.weight == step.weight))",
    holds=_rising,
    message="the weights {value} do not rise from step to step: write each one greater than the one before, "
    "for example 5, 25, 50",
    value_cel="self.map(step, step.weight)",
    value=lambda steps: [step.weight for step in steps],
)


class Analysis(Model):
    """How a new revision is judged."""

    source: AnalysisSource = AnalysisSource.GATEWAY
    """Source of the request counts. gateway: the counters of each gateway pod. prometheus: the same counters
    as scraped by the Prometheus of the installation; without a Prometheus the rollout waits."""

    policy: AnalysisPolicy = AnalysisPolicy.BOTH
    """When a revision is rejected. absolute: if it breaches the SLA. relative: if it is worse than the stable
    revision. both: if both hold. For one of analysis.metrics, its bound takes the part of the SLA. A metric
    that has no value for both revisions, because its query does not contain $revision or contains $stable, is
    always judged by its bound alone. A fraction of requests or events is worse if it is more than 1.5 times
    that of stable; a mean of values is worse if it is nearer to the bad end of its range. When stable gets no
    requests any more, the revision is compared with the last minutes of stable. A mean of values, and a
    revision beside which stable served no requests, is then rejected for a breach alone, with each policy.

    A revision with all requests is not rejected for a disturbance of ten seconds, whatever its cause: bad
    requests must occur in three separate windows of ten seconds, which takes about 22 seconds. A disturbance
    of 20 seconds or more can reach three windows, and then rejects the revision. A revision that fails nine
    of ten requests from the first one on is rejected at once. Beside stable, three windows are needed as well
    if a single pod may be the cause: a revision whose pods are sometimes slow for ten seconds is not
    rejected, unless it has only one pod and that pod is slow at its first requests. Disturbances of 30
    seconds rejected such a revision in 12 of 120 simulations. Policy relative needs no windows beside stable.
    With source prometheus, requests have the time of the scrape that reports them, so that a disturbance
    shorter than the scrape interval can appear in three windows."""

    warmup_requests: Annotated[
        StrictInt, whole_number("warmupRequests", 0, 100_000, "a number of requests")
    ] = 10
    """Number of first requests of each new pod, and of first events of each metric with counters, that cannot
    reject a revision."""

    min_error_rate: Annotated[
        Percentage, percentage_within("0%", "50%", "that a new revision is proven to stay below")
    ] = Percentage(Decimal(1))
    """The smallest error rate for which a proof is required to pass a step, even if spec.sla.errorRate is
    lower: proving a smaller rate takes more requests than most services get."""

    data_timeout: Annotated[
        Duration, duration_between("10s", "1h", "after which missing counters are reported")
    ] = Duration(60_000)
    """Time without the counters of some gateway, or without a value of some metric, after which the rollout
    is paused until they are back. Before that, the status names what is missing, and no step passes."""

    metrics: Annotated[tuple[AnalysisMetric, ...], Field(max_length=8), list_map("name")] = ()
    """Further metrics, read from the Prometheus of the installation. A revision that breaches one bound is
    rejected; to pass, it must keep all of them."""


class RolloutSpec(Model):
    """How a new revision takes over, and when it does not."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.steps) || self.steps.size() == 0 || self.strategy == 'canary'",
            holds=lambda rollout: not rollout.steps or rollout.strategy is Strategy.CANARY,
            message="steps have no effect with strategy {value}: remove them, or write strategy canary",
            quoted="strategy",
        ),
        Rule(
            cel="self.strategy != 'recreate' || self.capacity == 'surge'",
            holds=lambda rollout: (
                rollout.strategy is not Strategy.RECREATE or rollout.capacity is Capacity.SURGE
            ),
            message="capacity {value} has no effect with strategy recreate, which ends all old pods first: "
            "remove one of the two",
            quoted="capacity",
        ),
        Rule(
            cel=f"!self.minStepTime.matches('^{DURATION_PATTERN}$') "
            f"|| !self.maxStepTime.matches('^{DURATION_PATTERN}$') "
            "|| duration(self.minStepTime) <= duration(self.maxStepTime)",
            holds=lambda rollout: rollout.min_step_time <= rollout.max_step_time,
            message="minStepTime '{value}' is longer than maxStepTime: a step would end before it may pass, "
            "shorten minStepTime or lengthen maxStepTime",
            quoted="min_step_time",
        ),
    )

    strategy: Strategy = Strategy.BLUE_GREEN
    """blueGreen: all requests move at once, and return at once if the new revision fails. canary: requests
    move step by step. recreate: the old pods end before the new ones start; for clusters without spare
    devices.
    """

    steps: Annotated[tuple[Step, ...], Field(max_length=_MOST_STEPS), ATOMIC, _STEPS_RISE] = ()
    """Steps of a canary. Default: 5, 25 and 50 percent. With fewer than about ten requests per second, 5
    percent of them are too few for a verdict within half an hour: the single step {weight: 50} leads to a
    verdict soonest, and kubectl tailbound plan proposes steps and times for the present traffic."""

    capacity: Capacity = Capacity.SURGE
    """surge: the new pods start beside the old ones, and wait while the cluster has no capacity for them.
    inPlace: they replace old pods one after the other, so that no spare device is needed and one pod is
    missing meanwhile. auto: like surge where the cluster has capacity, otherwise like inPlace. A rollback
    does the same. With each value, old pods that cannot start, or that have not been ready for
    progressDeadline, are replaced in place if the cluster has no capacity. The only pod of a service is
    replaced in place only in this case, and with each value its rollout waits for capacity until then;
    strategy recreate does not wait.
    """

    promotion: Promotion = Promotion.AUTOMATIC
    """automatic: a revision that has passed its last step is promoted. manual: it waits for kubectl tailbound
    promote. With blueGreen it answers requests to NAME-preview.NAMESPACE.svc until then, unless another
    service has that name."""

    signature: SignaturePolicy = SignaturePolicy.ANY
    """Which change of the model's inputs and outputs rejects a new revision before it gets a request. any:
    none; the condition SignatureChanged names the change. compatible: one that breaks clients of the stable
    revision: an input that was removed, renamed or added, another type or number of dimensions, an input
    dimension of fewer sizes, or an output that was removed, renamed, moved or has a dimension of more sizes.
    same: every one. The operator asks one ready pod of each revision for GET /v2/models/NAME, NAME being that
    of the service. If it has no answer within seconds, or the server does not state its tensors, nothing is
    rejected, and the condition says why. With strategy recreate, and while no pod of the stable revision is
    ready, the new revision gets requests at once and is rejected a moment later."""

    on_inconclusive: OnInconclusive = OnInconclusive.PAUSE
    """What the operator does when maxStepTime is over without a verdict. It promotes no revision for which
    counters or metrics are missing."""

    min_step_time: Annotated[Duration, duration_between("1s", "24h", "which a step lasts at least")] = (
        Duration(30_000)
    )
    """Minimum duration of a step."""

    max_step_time: Annotated[
        Duration, duration_between("1s", "168h", "after which a step is inconclusive")
    ] = Duration(1_800_000)
    """Maximum duration of a step; onInconclusive says what happens then."""

    progress_deadline: Annotated[
        Duration, duration_between("10s", "24h", "within which one more pod must get ready")
    ] = Duration(600_000)
    """Time within which one more pod than before must become ready, or else the new revision is rejected. It
    is not counted while no pod is missing, while the cluster has no capacity for the missing pods, nor while
    all others that are not ready download the model: a download ends by itself when no more bytes come."""

    restart_limit: Annotated[StrictInt, whole_number("restartLimit", 1, 100, "a number of restarts")] = 3
    """Number of restarts of one container after which the new revision is rejected."""

    scale_down_delay: Annotated[
        Duration, duration_between("0s", "24h", "for which the old pods stay after a promotion")
    ] = Duration(30_000)
    """Time for which the old pods are kept after a promotion, so that a rollback needs no start of pods.
    During this time the new revision, which gets all requests, is still rolled back if the evidence rejects
    it; no further proof is needed for it to stay."""

    history_limit: Annotated[StrictInt, whole_number("historyLimit", 1, 100, "a number of revisions")] = 10
    """Number of revisions that are kept for rollbacks."""

    analysis: Analysis = Analysis()
    """How a new revision is judged."""

    @property
    def weights(self) -> tuple[int, ...]:
        """Percent of the requests at each step before all of them; none but for a canary."""
        if self.strategy is not Strategy.CANARY:
            return ()
        return tuple(step.weight for step in self.steps) or DEFAULT_WEIGHTS


DEFAULT_WEIGHTS: Final = (5, 25, 50)
"""The steps of a canary for which none are written."""


class RolloutState(StrEnum):
    """The state of a rollout."""

    PENDING = "Pending"
    STARTING = "Starting"
    ANALYSING = "Analysing"
    PROMOTING = "Promoting"
    PROMOTED = "Promoted"
    ROLLED_BACK = "RolledBack"
    PAUSED = "Paused"

    @property
    def is_over(self) -> bool:
        """Whether the rollout has ended."""
        return self in (RolloutState.PROMOTED, RolloutState.ROLLED_BACK)


class Refusal(Model):
    """A write that the API server refuses."""

    reason: Annotated[str, StringConstraints(max_length=64)]
    """Cause as one CamelCase word, for programs."""

    message: Annotated[str, StringConstraints(max_length=4096)]
    """The object, and the answer of the API server."""


class RolloutStatus(Model):
    """The last rollout, either under way or ended."""

    state: RolloutState
    """State of the rollout."""

    revision: RevisionName
    """The revision that takes over."""

    from_revision: Annotated[RevisionName, Field(alias="from")] = ""
    """The stable revision when the rollout began; empty for the first revision."""

    instead_of: RevisionName = ""
    """The revision that a rollback rejects when the older one serves again; empty if no rollback is under
    way."""

    step: Annotated[StrictInt, Field(ge=0)] = 0
    """Index of the present step, from 0; the number of steps while the new revision gets all requests."""

    step_weight: Annotated[StrictInt, Field(ge=0, le=100)] = 0
    """Percent of the requests for the new revision in the present step; 0 before the first step."""

    passed: Annotated[StrictInt, Field(ge=0, le=100)] = 0
    """The highest percentage of the requests with which the new revision has passed a step."""

    judged_by: Annotated[
        tuple[Annotated[str, StringConstraints(max_length=128)], ...] | None, Field(max_length=16), ATOMIC
    ] = None
    """The objectives and metrics that judge the new revision; passed steps are valid only for these."""

    weight: Annotated[StrictInt, Field(ge=0, le=100)] = 0
    """Percent of the requests that gateways are asked to send to the new revision."""

    reason: Annotated[str, StringConstraints(max_length=64)] = ""
    """Cause of the state as one CamelCase word, for programs."""

    message: Annotated[str, StringConstraints(max_length=4096)] = ""
    """Cause of the state as a sentence."""

    started_at: AwareDatetime | None = None
    """When the rollout began."""

    step_started_at: AwareDatetime | None = None
    """When every Ready gateway was first seen to apply the weight of the present step."""

    step_asked_at: AwareDatetime | None = None
    """When the weight of the present step was first written to status.traffic."""

    step_held_by: Annotated[str, StringConstraints(max_length=1024)] = ""
    """Pods of the stable revision that were last seen not ready before the step began: gateways apply its
    weight only while some of them are ready."""

    progress_at: AwareDatetime | None = None
    """When progressDeadline began, moved later by the time that is not counted."""

    still_since: AwareDatetime | None = None
    """Since when progressDeadline is not counted; absent while it is counted."""

    no_capacity_since: Annotated[AwareDatetime | None, Field(alias="noRoomSince")] = None
    """Since when the cluster has no capacity for pods of the new revision."""

    moving_since: AwareDatetime | None = None
    """Since when requests stay with a revision because the one that replaces it has too few ready pods. They
    stay for progressDeadline at most."""

    in_place: StrictBool = False
    """True while pods of the new revision replace those of the stable one in place."""

    high_water: Annotated[StrictInt, Field(ge=0)] = 0
    """The highest number of pods of the new revision that were ready at once."""

    refused: Refusal | None = None
    """The last write for this rollout that the API server refused; absent if the last attempt succeeded."""

    unrecorded: StrictBool = False
    """True if the revision is rejected, but the API server refuses to write that to its
    ControllerRevision."""

    findings: Annotated[tuple[FindingStatus, ...], Field(max_length=8), list_map("measure")] = ()
    """The verdict on each objective at the last complete poll."""

    metrics: Annotated[tuple[MetricFindingStatus, ...], Field(max_length=8), list_map("name")] = ()
    """The verdict on each of analysis.metrics."""

    evidence: Annotated[dict[str, Any] | None, FREE_FORM] = None
    """Internal state of the evidence, compressed. Only the operator reads it."""
