"""What a step of a rollout rests on, and what it decides. Values only."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from tailbound.api.quantities import Duration
from tailbound.api.rejection import Rejection, Superseded
from tailbound.api.rollout import RolloutSpec
from tailbound.api.traffic import TrafficStatus
from tailbound.objects.kubectl import Commands
from tailbound.rollout.actions import Actions
from tailbound.rollout.problem import Problem
from tailbound.rollout.progress import RolloutProgress
from tailbound.rollout.signature import NO_ROLLOUT, CompareResult
from tailbound.rollout.sizing import ALL, Sizing


@dataclass(frozen=True)
class RevisionState:
    """One revision as far as a rollout is concerned."""

    number: int = 0
    restorable: bool = True
    """Its record can be read, so that its children can be made."""
    recorded: bool = True
    """Whether its ControllerRevision is there."""
    deployed: bool = False
    replicas: int = 0
    """The pods that its Deployment asks for."""
    pods: int = 0
    """Those that are ending included."""
    ready: int = 0
    """Ready endpoints."""
    restarts: int = 0
    """Most of any container of any pod."""
    over_limit: int = 0
    """Pods that were evicted within the last minutes for what they used themselves."""
    stuck: int = 0
    """Pods that are not ready, and say what they are stuck at, and those that the API server refuses."""
    unready_since: tuple[datetime, ...] = ()
    """Since when each of its pods is not ready, of those that do not say what they are stuck at."""
    running: int = 0
    """Pods that have a node, and are not ready."""
    downloading: int = 0
    """Those of them that download the model, in their first attempt."""
    trouble: Problem | None = None
    unready: str = ""
    """What a pod lacks that runs and is not ready, in words; empty if there is none."""
    unready_pods: tuple[str, ...] = ()
    """Names of its pods that are no ready endpoints, those that are ending left out."""
    promoted_at: str | None = None
    rejection: Rejection | None = None
    tries: int = 0
    """How often it was rejected and tried again before."""
    gives_up_after: Duration | None = None
    """The time for which its pods wait for nodes, if it returns to a preferred class; None: for ever."""
    refused: Problem | None = None
    """Why the API server does not take a change of its Deployment."""

    @property
    def lacks_capacity(self) -> bool:
        """Whether its missing pods lack capacity, and nothing else keeps them from getting ready."""
        return self.trouble is not None and self.trouble.lacks_capacity and not self.running

    @property
    def downloads(self) -> bool:
        """Whether all pods that run and are not ready download the model, and more bytes come."""
        stuck = self.trouble is not None and not self.trouble.lacks_capacity
        return 0 < self.running <= self.downloading and not stuck

    @property
    def placeless(self) -> bool:
        """Whether none of its pods has a node, and the end of other pods frees no capacity for them."""
        nowhere = not self.running and not self.ready
        return self.trouble is not None and self.trouble.placeless and nowhere


_ABSENT: Final = RevisionState()


@dataclass(frozen=True)
class RolloutInput:
    """Everything that one step rests on, but for the verdict."""

    commands: Commands
    """Remedies that messages name."""
    desired: str | None
    """The revision of the spec as it is; None while there is none and none can be made."""
    stable: str | None
    """The revision that is marked as the last that was fully promoted."""
    revisions: Mapping[str, RevisionState]
    sizing: Sizing
    stopped: bool
    refused: Problem | None
    """Why the desired revision does not get its record, Service and Deployment, one of which is missing."""
    traffic: TrafficStatus | None
    acknowledged: bool
    """Every Ready gateway has applied `traffic`, and there is at least one."""
    first_generation: int
    """Generation of a `traffic` that is written where none is stored, or where that is overtaken."""
    spec: RolloutSpec
    stored: RolloutProgress | None
    actions: Actions
    demands: tuple[str, ...] | None
    """What the spec asks of a candidate; None before a rollout has begun."""
    followed: bool
    """Every Ready gateway counts requests as the spec says."""
    timeout: timedelta
    """The longest that a request can take, until it has been counted and read."""
    time: datetime
    overtaken: bool = False
    """A gateway has applied a later `traffic`: the stored one is from a backup, and gets a generation that no
    gateway knows."""
    signature: CompareResult = NO_ROLLOUT
    """The inputs and outputs of the candidate's model beside those of stable's."""
    elsewhere: bool = False
    """Whether candidate and base have different hardware classes: capacity for one is none for the other."""
    marks_refused: bool = False
    """The API server refuses to write what is to be remembered of a revision."""

    def of(self, name: str | None) -> RevisionState:
        """The state of a revision; that of one that does not exist is all zeros."""
        return self.revisions.get(name or "", _ABSENT)

    def pods(self, name: str, share: int = ALL) -> int:
        """Pods that a revision needs for this percentage of the requests."""
        return self.sizing.pods(name, share)

    def ready(self, name: str | None) -> int:
        """Ready endpoints of a revision."""
        return self.of(name).ready


@dataclass(frozen=True)
class TrafficDecision:
    """The revisions that get requests."""

    traffic: TrafficStatus | None
    """status.traffic as it should be; None if there never was anything to serve."""
    target: str | None
    """The revision that gets all requests, or all but the candidate's share."""
    settled: bool
    """The weights are where they should be, and every gateway has acknowledged them."""
    waits: bool = False
    """Others keep requests until pods of the target are there for them."""

    @property
    def whole(self) -> bool:
        """The target has all requests."""
        backends = self.traffic.backends if self.traffic is not None else ()
        return self.target is not None and {each.revision for each in backends} == {self.target}


@dataclass(frozen=True)
class Marking:
    """What is to be remembered on ControllerRevisions."""

    stable: str | None = None
    """The revision that is the stable one from now on; all others are not."""
    promoted_by: str | None = None
    rejection: Rejection | None = None
    superseded: Superseded | None = None
    not_returned: Rejection | None = None
    """Why a return that was asked for is given up; the revision stays one that can be returned to."""
    cleared: str | None = None
    """A revision that is not rejected any more, as it is tried again, or a return to it was asked for."""
    handled: tuple[str, ...] = ()
    """Annotations that are done with; a `retry` forgets the rejection of the revision that it names."""
    under_way: tuple[str, ...] = ()
    """Annotations that are being acted on, and go on to be if they are lost."""


@dataclass(frozen=True)
class RolloutStep:
    """One decision. Deciding again on what came of it ends at a fixed point."""

    flow: TrafficDecision
    rollout: RolloutProgress | None
    """How far the rollout is, without what the evidence says at this poll."""
    stable: str | None
    """The revision that requests return to."""
    candidate: str | None
    """The revision that is on its way to take over."""
    fleet: Mapping[str, int]
    """Pods of each revision that is to exist."""
    shrink: bool
    """Revisions outside the fleet may be taken away."""
    tries: Mapping[str, int] = field(default_factory=dict)
    """Pods that Deployments are to have soon, which the API server is asked about before weights change."""
    makes_way: str | None = None
    """The revision that gives up its places to one that comes back."""
    carries: Mapping[str, int] = field(default_factory=dict)
    """Percent of the requests that a revision of the fleet must be able to carry, if not all."""
    marking: Marking = field(default_factory=Marking)
    rejection: Rejection | None = None
    """Why the desired revision does not serve, if it was rejected."""
    again_at: datetime | None = None
    """When it is tried again by itself; None: only when a user asks for it."""
    poll: bool = False
    """Counters of both revisions are wanted."""
    queries: tuple[str, ...] = ()
    """What to ask Prometheus about the candidate."""
    next_step: bool = False
    """The evidence for passing starts again."""
    wake: timedelta | None = None
    """Look again after this time."""
    refusal: str | None = None
    """Why an annotation that is there asks for something that cannot be."""
