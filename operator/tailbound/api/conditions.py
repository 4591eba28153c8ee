"""Condition types and reasons of an InferenceService. Frozen: users alert on these words.

`Ready` is True only if the newest spec is what serves: its revision takes all traffic, every gateway has
acknowledged that, and a ready endpoint answers. While a new revision is on its way it is Unknown
(`RollingOut`), so that `kubectl wait --for=condition=Ready` right after `kubectl apply` waits for the edit.
`Promoted` is True if the newest spec's revision has taken over, Unknown while it is on its way or waits for
a person, and False (`RolledBack`) once it was rejected: `kubectl wait --for=condition=Promoted` waits for it.
`Reconciling` and `Stalled` are abnormal-true, as kstatus reads them. `ActionRefused` is True while an
annotation asks a rollout for something that cannot be, and `Conflict` while a write of a child is refused, or
another client undoes it again and again: the rest goes on meanwhile.
"""

from enum import StrEnum


class ConditionType(StrEnum):
    """What a condition speaks about."""

    READY = "Ready"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"
    SCHEDULED = "Scheduled"
    MODEL_VERIFIED = "ModelVerified"
    TRAFFIC_APPLIED = "TrafficApplied"
    RUNTIME_OUTDATED = "RuntimeOutdated"
    PROMOTED = "Promoted"
    ACTION_REFUSED = "ActionRefused"
    CONFLICT = "Conflict"
    # SLAMet is there with a P99 target, the others where pods follow the traffic. ScalingLimited is also
    # elsewhere while it is True.
    SLA_MET = "SLAMet"
    SCALING_LIMITED = "ScalingLimited"
    METRICS_STALE = "MetricsStale"


class ConditionStatus(StrEnum):
    """The three values that Kubernetes knows."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Reason(StrEnum):
    """Why a condition has its status. One word means one thing, whichever condition carries it."""

    # Good news.
    SERVING = "Serving"
    RECONCILED = "Reconciled"
    NOT_STALLED = "NotStalled"
    SCHEDULED = "Scheduled"
    DIGEST_MATCHES = "DigestMatches"
    ACKNOWLEDGED = "Acknowledged"  # every Ready gateway pod has applied status.traffic
    UP_TO_DATE = "UpToDate"  # a fresh rendering of the runtime equals the stored one
    WITHIN_TARGET = "WithinTarget"  # at most one request in a hundred was slower than the P99 target
    NOT_LIMITED = "NotLimited"
    METRICS_FRESH = "MetricsFresh"
    # On the way.
    PENDING = "Pending"  # seen, nothing known yet
    STARTING = "Starting"  # pods exist and are not Ready yet, without a known obstacle
    FETCHING = "Fetching"  # the fetch container is downloading
    ROLLING_OUT = "RollingOut"  # a newer revision starts while an older one serves
    WAITING_FOR_GATEWAY = (
        "WaitingForGateway"  # a Ready gateway pod has not acknowledged yet; the message names it
    )
    NO_GATEWAY = "NoGateway"  # no gateway pod is Ready
    STOPPED = "Stopped"  # spec.stopped
    # Rollouts. Reasons of Promoted and of status.rollout.
    PROMOTED = "Promoted"  # the revision takes all requests and was judged good, or was promoted manually
    ROLLED_BACK = "RolledBack"  # the revision was rejected; status.rollout.reason says why
    ANALYSING = "Analysing"  # it gets its share of the requests, and there is no verdict yet
    NO_DATA = "NoData"  # a gateway's counters are missing: no verdict until they are back
    SHARED_BREACH = "SharedBreach"  # stable is as bad: a cause that both share, so that the rollout holds
    AWAITING_PROMOTION = "AwaitingPromotion"  # every step is passed and spec.rollout.promotion is manual
    PAUSED = "Paused"  # by the annotation tailbound.dev/pause
    INCONCLUSIVE = "Inconclusive"  # a step was over without a verdict
    PROMOTED_MANUALLY = "PromotedManually"
    # Why a revision was rejected: one of these, or what kept its pods from getting ready (CrashLoop …).
    SLOW = "Slow"  # proven to breach the latency target
    FAILING = "Failing"  # proven to breach the error rate
    METRIC_BREACHED = "MetricBreached"  # proven to breach a bound of analysis.metrics
    DEADLINE_EXCEEDED = "DeadlineExceeded"  # no further pod got ready within spec.rollout.progressDeadline
    LOST = "Lost"  # promoted, and then none of its endpoints was ready any more
    ABORTED_MANUALLY = "AbortedManually"
    ROLLED_BACK_MANUALLY = "RolledBackManually"  # by the annotation tailbound.dev/rollback-to
    ACTION_REFUSED = "ActionRefused"  # an annotation names a revision for which it has no sense
    NO_ACTION_REFUSED = "NoActionRefused"
    SUPERSEDED = "Superseded"  # a newer spec came before it was judged; not a rejection
    # Scaling.
    TARGET_MISSED = "TargetMissed"  # more than one request in a hundred was slower than the P99 target
    AT_MAXIMUM = "AtMaximum"  # the traffic, or spec.scaling.replicas, asks for more pods than max
    AT_MINIMUM = "AtMinimum"  # spec.scaling.replicas asks for fewer pods than min
    METRICS_MISSING = "MetricsMissing"  # pods are not taken away meanwhile; the message says what is missing
    # Obstacles outside the spec: they end by themselves once the cause is mended.
    UNSCHEDULABLE = "Unschedulable"
    IMAGE_PULL_FAILED = "ImagePullFailed"
    CRASH_LOOP = "CrashLoop"
    OUT_OF_MEMORY = "OutOfMemory"
    MODEL_LOAD_FAILED = "ModelLoadFailed"  # the runtime refused the file: corrupt, or not of this format
    WRITE_REFUSED = (
        "WriteRefused"  # the API server refuses a child; the message names it and quotes the server
    )
    CONTESTED = "Contested"  # another client undoes what is written of a child; the message names both
    NO_CONFLICT = "NoConflict"
    MODEL_BROKEN = "ModelBroken"  # it was served, and then failed on everything: mostly its device did
    NOT_READY = "NotReady"  # promoted, but no endpoint is ready now
    QUOTA_EXCEEDED = "QuotaExceeded"  # the API server refuses pods: quota or admission; the message quotes it
    DIGEST_MISMATCH = "DigestMismatch"
    SOURCE_NOT_FOUND = "SourceNotFound"
    SOURCE_FORBIDDEN = "SourceForbidden"
    SOURCE_UNREACHABLE = "SourceUnreachable"
    ADDRESS_DENIED = "AddressDenied"  # the source resolves to an address that fetching may not reach
    INSUFFICIENT_STORAGE = "InsufficientStorage"
    RUNTIME_CHANGED = (
        "RuntimeChanged"  # a fresh rendering differs from the stored one; serving pods are untouched
    )
    ROUTE_REJECTED = "RouteRejected"  # Envoy refused this service's route; the message quotes it
    HOST_CONFLICT = "HostConflict"  # another service owns one of spec.hosts
    # Obstacles in the spec or beside it, which go only when something is changed by hand.
    INVALID_SPEC = "InvalidSpec"
    NAME_CONFLICT = "NameConflict"  # an object of a name that we need has another owner
    RUNTIME_NOT_FOUND = "RuntimeNotFound"
    RUNTIME_INVALID = "RuntimeInvalid"  # its template cannot be rendered, or renders a pod that is refused
    HARDWARE_CLASS_NOT_FOUND = "HardwareClassNotFound"
    HARDWARE_CLASS_DENIED = "HardwareClassDenied"  # the class does not allow this namespace
    REVISION_CORRUPT = "RevisionCorrupt"  # a ControllerRevision does not hold what Tailbound wrote


# The reasons of the last group: they make Stalled=True.
STALLING: frozenset[Reason] = frozenset(
    {
        Reason.INVALID_SPEC,
        Reason.NAME_CONFLICT,
        Reason.RUNTIME_NOT_FOUND,
        Reason.RUNTIME_INVALID,
        Reason.HARDWARE_CLASS_NOT_FOUND,
        Reason.HARDWARE_CLASS_DENIED,
        Reason.REVISION_CORRUPT,
    }
)
