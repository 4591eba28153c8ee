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
    # False once there has been a rollout of a service without a latency target.
    JUDGED = "Judged"
    # There once there has been a rollout from one revision to another. True: the models' metadata differ.
    SIGNATURE_CHANGED = "SignatureChanged"
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
    FALLBACK_CLASS = "FallbackClass"  # pods run on another hardware class than the first of the spec
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
    NOT_JUDGED = "NotJudged"  # the spec has no target for something; the message says for what
    SIGNATURE_UNCHANGED = "SignatureUnchanged"  # its model has the inputs and outputs of stable's
    SIGNATURE_UNKNOWN = "SignatureUnknown"  # the inputs and outputs of one of both are not known
    SIGNATURE_ACCEPTED = "SignatureAccepted"  # they differ, and the revision has taken over
    INCONCLUSIVE = "Inconclusive"  # a step was over without a verdict
    PROMOTED_MANUALLY = "PromotedManually"
    # Why a revision was rejected: one of these, or what kept its pods from getting ready (CrashLoop …).
    SLOW = "Slow"  # proven to breach the latency target
    FAILING = "Failing"  # proven to breach the error rate
    METRIC_BREACHED = "MetricBreached"  # proven to breach a bound of analysis.metrics
    SIGNATURE_CHANGED = "SignatureChanged"  # inputs or outputs of its model are not those of stable's
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
    RECORD_LOST = "RecordLost"  # the ControllerRevision of a revision that serves was deleted
    WRITE_REFUSED = (
        "WriteRefused"  # the API server refuses a child; the message names it and quotes the server
    )
    WRITE_FAILED = "WriteFailed"  # the API server gets a write of a child not done, several times in a row
    RIGHT_MISSING = "RightMissing"  # Tailbound may not write a child: the message quotes the API server
    CONTESTED = "Contested"  # another client undoes what is written of a child; the message names both
    NO_CONFLICT = "NoConflict"
    MODEL_BROKEN = "ModelBroken"  # it was served, and then failed on everything: mostly its device did
    NOT_READY = "NotReady"  # promoted, but no endpoint is ready now
    QUOTA_EXCEEDED = "QuotaExceeded"  # a ResourceQuota has no room for pods; the message quotes it
    # Nothing but a change by hand gives such pods a place, so that the deadline of a rollout runs.
    QUOTA_TOO_SMALL = "QuotaTooSmall"  # a ResourceQuota allows less than one pod asks for
    RESOURCES_REQUIRED = "ResourcesRequired"  # a ResourceQuota wants a resource to be stated
    SERVICE_ACCOUNT_NOT_FOUND = "ServiceAccountNotFound"
    RUNTIME_CLASS_NOT_FOUND = "RuntimeClassNotFound"
    PRIORITY_CLASS_NOT_FOUND = "PriorityClassNotFound"
    LIMIT_RANGE_VIOLATED = "LimitRangeViolated"
    POLICY_DENIED = "PolicyDenied"  # an admission policy, a webhook or Pod Security; the message quotes it
    WEBHOOK_UNAVAILABLE = "WebhookUnavailable"  # an admission webhook does not answer
    POD_REFUSED = "PodRefused"  # the API server refuses pods for another cause; the message quotes it
    SCHEDULER_ERROR = "SchedulerError"  # the scheduler fails on the pods, as on CEL that it cannot evaluate
    NO_NODE_FITS = "NoNodeFits"  # no node has the labels, taints and size that the pods ask for
    # What happened to a pod, and not to a container of it.
    EVICTED = "Evicted"  # it used more storage than it may, or its node ran low; the message says which
    PREEMPTED = "Preempted"  # a pod of a higher priority took its place
    NODE_SHUTDOWN = "NodeShutdown"  # its node was shut down, or is gone
    NODE_REFUSED = "NodeRefused"  # the kubelet refused it after the scheduler had chosen the node
    POD_FAILED = "PodFailed"  # it failed for another cause; the message quotes it
    DIGEST_MISMATCH = "DigestMismatch"
    SOURCE_CHANGED = "SourceChanged"  # other pods of the revision have verified the model before
    SOURCE_NOT_FOUND = "SourceNotFound"
    SOURCE_FORBIDDEN = "SourceForbidden"
    SOURCE_UNREACHABLE = "SourceUnreachable"
    ADDRESS_DENIED = "AddressDenied"  # the source resolves to an address that fetching may not reach
    CREDENTIALS_REFUSED = "CredentialsRefused"  # the Secret is missing, or is not for the host of the source
    NOT_A_MODEL = "NotAModel"  # the source answers with a page of a web site
    INSUFFICIENT_STORAGE = "InsufficientStorage"
    DISK_FAILED = "DiskFailed"  # the disk of the pod is read-only or broken; the message names the path
    CACHE_UNUSABLE = "CacheUnusable"  # the volume of spec.model.cache cannot be had, mounted or written
    RUNTIME_CHANGED = (
        "RuntimeChanged"  # a fresh rendering differs from the stored one; serving pods are untouched
    )
    ROUTE_REJECTED = "RouteRejected"  # Envoy refused this service's route; the message quotes it
    HOST_CONFLICT = "HostConflict"  # another service owns one of spec.hosts
    HOST_NOT_GRANTED = "HostNotGranted"  # no HostGrant gives one of spec.hosts to the namespace
    # Obstacles in the spec or beside it, which go only when something is changed by hand.
    INVALID_SPEC = "InvalidSpec"
    NAME_CONFLICT = "NameConflict"  # an object of a name that we need has another owner
    RUNTIME_NOT_FOUND = "RuntimeNotFound"
    RUNTIME_INVALID = "RuntimeInvalid"  # its template cannot be rendered, or renders a pod that is refused
    HARDWARE_CLASS_NOT_FOUND = "HardwareClassNotFound"
    HARDWARE_CLASS_DENIED = "HardwareClassDenied"  # the class does not allow this namespace
    DEVICE_CLASS_NOT_FOUND = "DeviceClassNotFound"
    DYNAMIC_ALLOCATION_UNAVAILABLE = (
        "DynamicAllocationUnavailable"  # the API server does not serve resource.k8s.io/v1
    )
    RESOURCE_CLAIM_REFUSED = "ResourceClaimRefused"  # mostly for its CEL; the message quotes the server
    MODEL_TOO_LARGE = "ModelTooLarge"  # model.size exceeds the memory of a pod's devices
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
        Reason.DEVICE_CLASS_NOT_FOUND,
        Reason.DYNAMIC_ALLOCATION_UNAVAILABLE,
        Reason.RESOURCE_CLAIM_REFUSED,
        Reason.MODEL_TOO_LARGE,
        Reason.REVISION_CORRUPT,
    }
)

# Reasons for which pods have no place, and get none when other pods end.
PLACELESS: frozenset[Reason] = frozenset(
    {
        Reason.QUOTA_TOO_SMALL,
        Reason.RESOURCES_REQUIRED,
        Reason.SERVICE_ACCOUNT_NOT_FOUND,
        Reason.RUNTIME_CLASS_NOT_FOUND,
        Reason.PRIORITY_CLASS_NOT_FOUND,
        Reason.LIMIT_RANGE_VIOLATED,
        Reason.POLICY_DENIED,
        Reason.WEBHOOK_UNAVAILABLE,
        Reason.POD_REFUSED,
        Reason.NO_NODE_FITS,
        Reason.SCHEDULER_ERROR,
    }
)


def known_reason(stored: str) -> Reason | None:
    """The reason of this name; None for one that another version of the operator has stored."""
    try:
        return Reason(stored)
    except ValueError:
        return None
