"""How a new revision takes over: what is wanted, and what was observed on its way."""

from decimal import Decimal
from enum import StrEnum
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Final

from pydantic import AwareDatetime, Field, StrictBool, StrictInt, StringConstraints

from tailbound.api.analysis_metric import AnalysisMetric
from tailbound.api.quantities import (
    DURATION_PATTERN,
    Duration,
    Percentage,
    duration_between,
    percentage_within,
)
from tailbound.api.schema import ATOMIC, FREE_FORM, Model, Rule, list_map, whole_number

_MOST_STEPS: Final = 16
RevisionName = Annotated[str, StringConstraints(max_length=63)]


class Strategy(StrEnum):
    """How the requests move to a new revision."""

    BLUE_GREEN = "blueGreen"
    CANARY = "canary"
    RECREATE = "recreate"


class Promotion(StrEnum):
    """Who decides that a revision that has passed takes over."""

    AUTOMATIC = "automatic"
    MANUAL = "manual"


def previews(strategy: str, promotion: str) -> bool:
    """Whether a candidate waits, whole and without a request, to be looked at and promoted manually."""
    return strategy == Strategy.BLUE_GREEN and promotion == Promotion.MANUAL


class OnInconclusive(StrEnum):
    """What follows if a step ends without a verdict."""

    PAUSE = "pause"
    ROLLBACK = "rollback"
    PROMOTE = "promote"


class Capacity(StrEnum):
    """Where the pods of a new revision find room."""

    SURGE = "surge"
    IN_PLACE = "inPlace"
    AUTO = "auto"


class AnalysisPolicy(StrEnum):
    """What a new revision is compared with."""

    BOTH = "both"
    ABSOLUTE = "absolute"
    RELATIVE = "relative"


class AnalysisSource(StrEnum):
    """Where the counts of requests come from."""

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
    """Where the counts of requests are read. gateway: from each gateway. prometheus: from what the
    installation's Prometheus scraped of them; without it the rollout waits."""

    policy: AnalysisPolicy = AnalysisPolicy.BOTH
    """What it takes to reject a revision: absolute, that it breaches the SLA; relative, that it is worse than
    the stable one; both, that it does both. Of a metric, its bound is the SLA. A metric that cannot be asked
    of both revisions is judged by its bound alone, whatever is written here: one with a query that does not
    name $revision, or that names $stable. Worse is a fraction of requests or events that is more than 1.5
    times as high as that of stable, and any mean of values that is nearer to the bad end of its range. Once
    stable gets no requests, its last minutes are what the revision is compared with; a mean of values, and a
    revision beside which stable served nothing, is then rejected by a breach with each of the three.

    A bad moment of ten seconds rejects no revision that has all requests, whatever its cause: it takes bad
    requests in three separate windows of ten seconds, some 22 seconds. What is bad for 20 seconds or longer
    may fill three, and is taken for the revision's own. One that fails nine of ten requests from its first
    one on is rejected at once. Beside stable the same is asked for where one pod may be the cause: a revision
    whose pods are slow for ten seconds now and then stays, unless its only pod is so at its first requests.
    Moments of 30 seconds rejected it in 12 of 120 simulations. Policy relative asks for no windows beside
    stable. With source prometheus requests are timed by the scrape that shows them, so that what is bad for
    less than the time between two scrapes may be seen in three windows."""

    warmup_requests: Annotated[
        StrictInt, whole_number("warmupRequests", 0, 100_000, "a number of requests")
    ] = 10
    """The first requests of each pod of a new revision, which are not held against it, and the first events
    of each metric with counters."""

    min_error_rate: Annotated[
        Percentage, percentage_within("0%", "50%", "that a new revision is proven to stay below")
    ] = Percentage(Decimal(1))
    """The smallest error rate that a passing revision is proven to stay below: proving a smaller one takes
    more requests than most services get."""

    data_timeout: Annotated[
        Duration, duration_between("10s", "1h", "after which missing counters are reported")
    ] = Duration(60_000)
    """After so long without counters of every gateway, or without one of the metrics, the rollout is paused
    until they are back. It says at once what is missing, and does not pass meanwhile."""

    metrics: Annotated[tuple[AnalysisMetric, ...], Field(max_length=8), list_map("name")] = ()
    """Further metrics, from the installation's Prometheus. A revision that breaches one is rejected, and it
    passes only with all of them."""


class RolloutSpec(Model):
    """How a new revision takes over, and when it does not."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.steps) || self.steps.size() == 0 || self.strategy == 'canary'",
            holds=lambda rollout: not rollout.steps or rollout.strategy is Strategy.CANARY,
            message="steps have no meaning with strategy {value}: remove them, or write strategy canary",
            value_cel="self.strategy",
            value=lambda rollout: rollout.strategy,
        ),
        Rule(
            cel="self.strategy != 'recreate' || self.capacity == 'surge'",
            holds=lambda rollout: (
                rollout.strategy is not Strategy.RECREATE or rollout.capacity is Capacity.SURGE
            ),
            message="capacity {value} has no meaning with strategy recreate, whose old pods all go first: "
            "remove one of the two",
            value_cel="self.capacity",
            value=lambda rollout: rollout.capacity,
        ),
        Rule(
            cel=f"!self.minStepTime.matches('^{DURATION_PATTERN}$') "
            f"|| !self.maxStepTime.matches('^{DURATION_PATTERN}$') "
            "|| duration(self.minStepTime) <= duration(self.maxStepTime)",
            holds=lambda rollout: rollout.min_step_time <= rollout.max_step_time,
            message="minStepTime '{value}' is longer than maxStepTime: a step would end before it may pass, "
            "shorten minStepTime or lengthen maxStepTime",
            value_cel="self.minStepTime",
            value=lambda rollout: rollout.min_step_time,
        ),
    )

    strategy: Strategy = Strategy.BLUE_GREEN
    """blueGreen: all requests move at once, and return at once if the new revision fails. canary: they move
    step by step. recreate: the old pods go before the new ones come; for clusters without spare devices."""

    steps: Annotated[tuple[Step, ...], Field(max_length=_MOST_STEPS), ATOMIC, _STEPS_RISE] = ()
    """Stages of a canary. Without them: 5, 25 and 50 percent. A service with fewer than some ten requests a
    second proves nothing with 5 percent of them in half an hour: {weight: 50} alone brings a verdict soonest,
    and kubectl tailbound plan proposes steps and times that fit its traffic."""

    capacity: Capacity = Capacity.SURGE
    """surge: the new pods come beside the old ones, and wait while there is no room. inPlace: they take the
    places of old ones, one after the other, so that no spare device is needed and one pod is missing
    meanwhile. auto: beside them where there is room, or else in place. A return to an older revision finds
    room in the same way. With each of the three, pods that are stuck, or that have not been ready for
    progressDeadline, give up their places where there is no room. The only pod of a service does so only
    then, and until then all three wait for room; strategy recreate does not wait."""

    promotion: Promotion = Promotion.AUTOMATIC
    """manual: a revision that has passed its last step waits for kubectl tailbound promote. With blueGreen it
    answers to NAME-preview.NAMESPACE.svc until then, as long as no other service has that name."""

    on_inconclusive: OnInconclusive = OnInconclusive.PAUSE
    """What follows if maxStepTime is over without a verdict. A revision of which counters or metrics are
    missing is not promoted by it."""

    min_step_time: Annotated[Duration, duration_between("1s", "24h", "which a step lasts at least")] = (
        Duration(30_000)
    )
    """What a step lasts at least."""

    max_step_time: Annotated[
        Duration, duration_between("1s", "168h", "after which a step is inconclusive")
    ] = Duration(1_800_000)
    """What a step lasts at most; onInconclusive says what follows."""

    progress_deadline: Annotated[
        Duration, duration_between("10s", "24h", "within which one more pod must get ready")
    ] = Duration(600_000)
    """Time in which one more pod must be ready than ever before, or else the new revision is rejected. It
    stands still while no pod is missing, and while those that are find no room in the cluster."""

    restart_limit: Annotated[StrictInt, whole_number("restartLimit", 1, 100, "a number of restarts")] = 3
    """So many restarts of one container of the new revision reject it."""

    scale_down_delay: Annotated[
        Duration, duration_between("0s", "24h", "for which the old pods stay after a promotion")
    ] = Duration(30_000)
    """How long the old pods stay after a promotion, so that a return takes no start. With all requests no
    further proof is asked for, but what speaks against the new revision still counts: for this time."""

    history_limit: Annotated[StrictInt, whole_number("historyLimit", 1, 100, "a number of revisions")] = 10
    """So many revisions are kept to return to."""

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
    """Where a rollout stands."""

    PENDING = "Pending"
    STARTING = "Starting"
    ANALYSING = "Analysing"
    PROMOTING = "Promoting"
    PROMOTED = "Promoted"
    ROLLED_BACK = "RolledBack"
    PAUSED = "Paused"


class Evidence(Model):
    """What speaks against or for a revision, as the natural logarithm of an e-value, and when it decides."""

    value: float
    """The evidence now."""

    threshold: float
    """The evidence that decides."""


class Finding(Model):
    """One objective at the last complete poll, with the numbers behind it."""

    measure: Annotated[str, StringConstraints(max_length=32)]
    """latency or errors."""

    outcome: Annotated[str, StringConstraints(max_length=32)]
    """RollBack, Hold, Pass or Wait."""

    allowed: float
    """The fraction of bad requests that the SLA allows."""

    unacceptable: float
    """The fraction of bad requests that a passing revision is proven to stay below."""

    requests: float
    """Requests of the new revision that were judged; fractional where bursts are deflated."""

    bad: float
    """Those of them that were slow, or failed."""

    absolute: Evidence
    """That the revision breaches the SLA."""

    late: Evidence
    """That it breaches the SLA since a later step began."""

    relative: Evidence
    """That it is worse than the stable revision."""

    passing: Evidence
    """That it is good enough; this step alone."""

    improves_breach: StrictBool = False
    """It passes only because it is proven better than a stable revision that breaches the SLA."""


class MetricFinding(Model):
    """One metric of analysis.metrics, with the numbers behind the verdict on it."""

    name: Annotated[str, StringConstraints(max_length=32)]
    """As in the spec."""

    outcome: Annotated[str, StringConstraints(max_length=32)]
    """RollBack, Hold, Pass or Wait."""

    samples: float
    """Events, or values, that were judged; fractional where bursts of events are deflated."""

    mean: float | None = None
    """Fraction of bad events, or the mean of the values; absent while there are none."""

    missing: Annotated[str, StringConstraints(max_length=1024)] | None = None
    """Why nothing can be read of it now; absent if something can."""

    unmatched: StrictBool = False
    """The query for bad events has matched series of stable and none of the revision, which is read as no bad
    events. It is also what a revision looks like that names its series or labels in another way."""

    bound: float
    """As in the spec."""

    against: Evidence
    """That the revision breaches the bound, or has done so since a later step began."""

    relative: Evidence | None = None
    """That it is worse than the stable revision; without it the metric is not asked of both."""

    passing: Evidence
    """That it keeps it; this step alone."""

    improves_breach: StrictBool = False
    """It passes only because it is proven better than a stable revision that breaches the bound."""


class Refusal(Model):
    """A write that the API server refuses."""

    reason: Annotated[str, StringConstraints(max_length=64)]
    """In one word for programs."""

    message: Annotated[str, StringConstraints(max_length=4096)]
    """The object and what the API server said, for people."""


class RolloutStatus(Model):
    """The last rollout: under way, or how it ended."""

    state: RolloutState
    """Where it stands."""

    revision: RevisionName
    """The revision that is to take over."""

    from_revision: Annotated[RevisionName, Field(alias="from")] = ""
    """The stable revision when it began; empty for the first one."""

    instead_of: RevisionName = ""
    """The revision that a return rejects once the older one serves again; empty if no return is under way."""

    step: Annotated[StrictInt, Field(ge=0)] = 0
    """Number of the present step, from 0; behind the last one while all requests go to the new revision."""

    step_weight: Annotated[StrictInt, Field(ge=0, le=100)] = 0
    """Percent of the requests that the present step is to give to the new revision; 0 before the first."""

    passed: Annotated[StrictInt, Field(ge=0, le=100)] = 0
    """The most percent of the requests with which the new revision has passed a step."""

    judged_by: Annotated[
        tuple[Annotated[str, StringConstraints(max_length=128)], ...] | None, Field(max_length=16), ATOMIC
    ] = None
    """What the new revision is judged by: what it passed was proven for no more than that."""

    weight: Annotated[StrictInt, Field(ge=0, le=100)] = 0
    """Percent of the requests that the new revision is to get."""

    reason: Annotated[str, StringConstraints(max_length=64)] = ""
    """Why it stands where it stands, in one word for programs."""

    message: Annotated[str, StringConstraints(max_length=4096)] = ""
    """Why it stands where it stands, in a sentence for people."""

    started_at: AwareDatetime | None = None
    """When it began."""

    step_started_at: AwareDatetime | None = None
    """When every gateway was first seen to apply the present step's weight."""

    step_asked_at: AwareDatetime | None = None
    """When the present step's weight was first asked for."""

    step_held_by: Annotated[str, StringConstraints(max_length=1024)] = ""
    """Pods of the stable revision that were not ready when they were last seen so before the step began: the
    gateways apply its weight only while some are ready."""

    progress_at: AwareDatetime | None = None
    """When progressDeadline began, later by the time for which it stood still."""

    still_since: AwareDatetime | None = None
    """Since when progressDeadline stands still, as no pod is missing that has a place."""

    no_room_since: AwareDatetime | None = None
    """Since when the new revision's pods find no room."""

    moving_since: AwareDatetime | None = None
    """Since when requests that leave a revision wait for pods of the one that takes them. They wait for
    progressDeadline at most."""

    in_place: StrictBool = False
    """The new revision's pods take the places of the stable one's."""

    high_water: Annotated[StrictInt, Field(ge=0)] = 0
    """The most pods of the new revision that were ever ready."""

    refused: Refusal | None = None
    """What the API server refused of what the rollout needs when that was last tried; absent if nothing."""

    unrecorded: StrictBool = False
    """The revision is rejected, and its record does not say so, as the API server refuses to write it."""

    findings: Annotated[tuple[Finding, ...], Field(max_length=8), list_map("measure")] = ()
    """The verdict on each objective at the last complete poll."""

    metrics: Annotated[tuple[MetricFinding, ...], Field(max_length=8), list_map("name")] = ()
    """The verdict on each of analysis.metrics."""

    evidence: Annotated[dict[str, Any] | None, FREE_FORM] = None
    """Counters, and all that was computed from them; read by the operator alone."""
