"""Inputs and outputs of `decide`: the boundary between the pure core and the controller around it.

The controller fills an `Observation` from its stores (never from the API server), has it parsed (`read`) and
a revision drafted (`draft`), hands both to `decide`, executes `Plan.writes` in order, and writes
`Plan.status` last. A write that the API server refuses for good becomes a `RefusedWrite` of the next
observation, so that the status explains it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, TypeAlias

from tailbound.api.conditions import Reason
from tailbound.api.hosts import HostStatus
from tailbound.api.traffic import Observed
from tailbound.autoscale.decision import ReplicaDecision
from tailbound.autoscale.model import LatencyTarget
from tailbound.judge.polls import PollResults
from tailbound.objects.download import DownloadProgress
from tailbound.objects.fields import Object
from tailbound.objects.signature import ModelSignature
from tailbound.objects.unknown import Unknown
from tailbound.revisions.model_mounts import Fetcher
from tailbound.revisions.pod import USER_ID


@dataclass(frozen=True)
class RefusedWrite:
    """A write that the API server refused in a way that trying again at once will not mend."""

    kind: str
    name: str
    reason: Reason
    message: str


@dataclass(frozen=True)
class Settings:
    """What the installation fixes for every service; it comes from the chart."""

    operator_namespace: str
    gateway_service: str
    cluster_domain: str
    fetcher: Fetcher
    serving_user_id: int | None = USER_ID
    """User and group of serving pods; None: the platform assigns them."""


@dataclass(frozen=True)
class RevisionLoad:
    """A revision that must be able to carry `share` percent of the requests."""

    share: int
    objective: LatencyTarget


@dataclass(frozen=True)
class ScalingRequest:
    """What the autoscaler is to do for a service with a P99 target: decide on its pods, or only watch it."""

    least: int
    """Pods of a revision with all requests, whatever the traffic."""
    most: int
    """Pods of a revision, whatever the traffic."""
    p99_seconds: float
    """The target."""
    revisions: Mapping[str, RevisionLoad]
    only_watched: bool = False
    """Whether the number of pods is fixed, so that only the late requests are counted."""
    settled: Mapping[str, tuple[int, int, str]] | None = None
    """Share, pods and limit of each sized revision as the status has them, if it says that all is well.

    A first look that finds the same is no news. None: every first look is.
    """


@dataclass(frozen=True)
class ScalingDecision:
    """The autoscaler's newest decision on one revision."""

    share: int
    """Percent of the requests that it is about."""
    decision: ReplicaDecision
    capacity: str | None = None
    """What is to be remembered of its speed; None if that is remembered already, or nothing is known."""
    placed: str = ""
    """Since when its pods are for another hardware class than its first one; empty for that one."""


@dataclass(frozen=True)
class ScalingDecisions:
    """The autoscaler's newest decisions on one service, and how late its requests are."""

    revisions: Mapping[str, ScalingDecision]
    """Nothing for a service that is only watched."""
    late: float | None
    """Share of the last minute's requests that were slower than the P99 target; None: there were none, or it
    could not be read."""
    awaited: bool = False
    """Whether metrics of it have never been complete, and could hardly be yet."""
    shed: float = 0.0
    """Share of the same requests that were refused because they would have been slower; a part of `late`."""
    missing: tuple[str, ...] = ()
    """Signals that were missing, with why, where the service is only watched. Decisions name their own."""


@dataclass(frozen=True)
class SignatureRequest:
    """A revision whose model's inputs and outputs are wanted, and where ready pods of it state them."""

    revision: str
    urls: tuple[str, ...]


@dataclass(frozen=True)
class DownloadRequest:
    """A revision whose model is downloaded, by its pods or by the Job that finds the digest.

    urls: where some of the pods say how far they are.
    """

    revision: str
    urls: tuple[str, ...]


NO_DEVICE_CLASSES: Final = Unknown("the API server does not serve resource.k8s.io/v1")
NO_READER: Final = Unknown("pods are not asked for the metadata of their model")


@dataclass(frozen=True)
class Children:
    """The objects labelled with one service's name in its namespace, also those of other owners."""

    revisions: tuple[Object, ...] = ()
    deployments: tuple[Object, ...] = ()
    services: tuple[Object, ...] = ()
    disruption_budgets: tuple[Object, ...] = ()
    pods: tuple[Object, ...] = ()
    endpoint_slices: tuple[Object, ...] = ()
    jobs: tuple[Object, ...] = ()
    claim_templates: tuple[Object, ...] = ()


@dataclass(frozen=True)
class Observation:
    """Everything `decide` may look at: one service and what surrounds it in the stores."""

    service: Object
    hardware_classes: Mapping[str, Object]
    runtimes: Mapping[str, Object]
    cluster_runtimes: Mapping[str, Object]
    children: Children
    gateways: Mapping[str, Observed | Unknown]
    settings: Settings
    refused_writes: tuple[RefusedWrite, ...] = ()
    readings: PollResults | None = None
    """The newest round of counters from every Ready gateway pod; None while none was asked for."""
    hosts: tuple[HostStatus, ...] = ()
    """The decision on each entry of spec.hosts."""
    signatures: Mapping[str, ModelSignature | Unknown] | Unknown = NO_READER
    """By revision, what its pods answered about their model; nothing while they are asked."""
    sizes: ScalingDecisions | None = None
    """The decisions of the autoscaler; None until its first, and where it does not decide."""
    device_classes: Mapping[str, Object] | Unknown = NO_DEVICE_CLASSES
    downloads: Mapping[str, DownloadProgress] = field(default_factory=dict)
    """By revision, how far the download of its model was when another tenth of it was there."""
    claims: tuple[Object, ...] = ()
    """The PersistentVolumeClaims of the namespace that cache models, of all its services."""


@dataclass(frozen=True)
class Create:
    """Create a child by unforced server-side apply. Refused if any object of that name exists."""

    body: Object


@dataclass(frozen=True)
class Apply:
    """Change an own child by forced server-side apply.

    The body holds the full set of owned fields, and the uid and resourceVersion it was decided on.
    """

    body: Object


@dataclass(frozen=True)
class DryRun:
    """Ask whether the API server would take this `Apply`, before something is given up for it."""

    body: Object


@dataclass(frozen=True)
class Delete:
    """Delete an own child, with its uid and resourceVersion as preconditions.

    Pods go by foreground deletion.
    """

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    resource_version: str


Write: TypeAlias = Create | Apply | DryRun | Delete


@dataclass(frozen=True)
class Event:
    """One Event on the InferenceService, for people. `type` is Normal or Warning."""

    type: str
    reason: str
    message: str


@dataclass(frozen=True)
class Plan:
    """What to do now. `status` is the whole desired status, or None if the stored one is right."""

    writes: tuple[Write, ...] = ()
    status: Object | None = None
    events: tuple[Event, ...] = ()
    requeue_after: timedelta | None = None
    """Look again after this time even if nothing changes; None: only when something changes."""
    summary: str = ""
    """The decision in words, for the log: one line per transition."""
    watch_gateways: bool = False
    """Read /observed of every Ready gateway pod soon and reconcile again: an acknowledgement is awaited."""
    poll_counters: bool = False
    """Read the counters of every Ready gateway pod regularly, and reconcile with each round."""
    queries: tuple[str, ...] = ()
    """Ask Prometheus these with each round of counters."""
    unread: tuple[SignatureRequest, ...] = ()
    """Ask pods of these revisions for the inputs and outputs of their model, and reconcile with each answer.
    Answers about others may be forgotten."""
    download: DownloadRequest | None = None
    """Ask these pods how far their download is, and reconcile with each tenth."""
    scalable: ScalingRequest | None = None
    """Follow the traffic, and reconcile with each changed decision; None: the pods are as the spec says."""
