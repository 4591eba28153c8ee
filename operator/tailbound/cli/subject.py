"""What the commands speak about: one service and its history."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tailbound.api.conditions import ConditionStatus, ConditionType, Reason
from tailbound.api.inferenceservice import InferenceService
from tailbound.api.parsing import InvalidObject, parse
from tailbound.api.rollout import RolloutState, RolloutStatus
from tailbound.objects.kubectl import Commands
from tailbound.revisions.marks import Marks, marks_of
from tailbound.revisions.record import CorruptRevisionError, Origin, Revision, from_object, spec_origin
from tailbound.rollout.actions import Actions, read_actions

_RETURNS = frozenset({Reason.LOST, Reason.ROLLED_BACK_MANUALLY})


class CommandError(Exception):
    """A command cannot do what was asked; the text says why and what to do instead."""


class UnansweredError(CommandError):
    """The API server gave no answer, or said that it cannot now: the same request may succeed in a moment."""


def deletion(service: InferenceService) -> str | None:
    """The message that a service is being deleted; None if it is not."""
    metadata = service.metadata
    if metadata.deletion_timestamp is None:
        return None
    return (
        "it is being deleted, and the operator changes nothing of it any more; it is gone when its "
        f"finalizers are: {', '.join(metadata.finalizers)}"
    )


@dataclass(frozen=True)
class Entry:
    """One revision in the history."""

    name: str
    number: int
    marks: Marks
    content: Revision | None
    """What Tailbound wrote into it; None if it holds something else."""


@dataclass(frozen=True)
class Subject:
    """One service, and its revisions from the oldest to the newest."""

    service: InferenceService
    history: tuple[Entry, ...]

    @property
    def title(self) -> str:
        """NAMESPACE/NAME."""
        return f"{self.service.metadata.namespace}/{self.service.metadata.name}"

    @property
    def commands(self) -> Commands:
        """Commands about it, for messages."""
        return Commands(self.service.metadata.namespace, self.service.metadata.name)

    @property
    def rollout(self) -> RolloutStatus | None:
        """The last rollout, if there was any."""
        return self.service.status.rollout

    @property
    def under_way(self) -> RolloutStatus | None:
        """The rollout that is not over."""
        rollout = self.rollout
        return rollout if rollout is not None and not rollout.state.is_over else None

    @property
    def unseen(self) -> str | None:
        """The message that the status does not describe the newest spec; None if it does.

        | the service | what is said |
        |---|---|
        | is being deleted: its generation counts that as well | that, and the finalizers that it waits for |
        | has a status of its generation | nothing |
        | has no status, or that of an older generation | that, and what to look at |
        """
        metadata = self.service.metadata
        generation, seen = metadata.generation, self.service.status.observed_generation
        ending = deletion(self.service)
        if ending is not None or seen == generation:
            return ending
        remedy = "if this persists, check that the operator of Tailbound runs and watches this namespace"
        if seen == 0:
            return f"the operator has not seen this service yet; {remedy}"
        return (
            f"the operator has not seen generation {generation} of the spec yet, and the status describes "
            f"generation {seen}; {remedy}"
        )

    @property
    def stalled(self) -> str | None:
        """What has to be changed before the newest spec can work; None if nothing is known to."""
        found = self.service.status.condition(ConditionType.STALLED)
        if found is None or found.status is not ConditionStatus.TRUE or found.reason == Reason.ROLLED_BACK:
            return None
        return f"the newest spec does not work ({found.reason}): {found.message}"

    @property
    def unready(self) -> str | None:
        """A sentence with the cause for which the newest spec does not serve; None if Ready names none."""
        found = self.service.status.condition(ConditionType.READY)
        known = (Reason.ROLLED_BACK, Reason.STOPPED)
        if found is None or found.status is not ConditionStatus.FALSE or found.reason in known:
            return None
        return f"the newest spec does not serve ({found.reason}): {found.message}"

    @property
    def obstacle(self) -> str | None:
        """The first cause, other than time, for which a rollout waits; None without one."""
        return self.unseen or self.stalled or self.unready

    def serves(self) -> str:
        """What answers requests now, in a sentence. First row that fits:

        | what holds | what is said |
        |---|---|
        | spec.stopped | that nothing does, and why |
        | no revision has requests | that none has, or that nothing has served yet |
        | no revision with requests has a ready pod | that requests fail |
        | otherwise | who gets how many of them, on how many pods |
        """
        status, title = self.service.status, self.title
        if self.service.spec.stopped:
            return f"{title} is stopped (spec.stopped is true) and answers 503."
        backends = status.traffic.backends if status.traffic is not None else ()
        sharing = [backend for backend in backends if backend.weight]
        if not sharing:
            none = "no revision has served yet" if status.stable is None else "no revision gets requests now"
            return f"{title}: {none}."
        pods = {each.revision: each for each in (status.stable, status.canary) if each is not None}
        known = [pods[each.revision] for each in sharing if each.revision in pods]
        if len(known) == len(sharing) and not any(each.ready for each in known):
            names = " and ".join(each.revision for each in sharing)
            return f"{title}: no pod of {names} is ready, so that requests fail."
        parts = []
        for backend in sharing:
            found = pods.get(backend.revision)
            ready = f" ({found.ready} of {found.replicas} pods ready)" if found is not None else ""
            parts.append(f"{backend.revision} gets {backend.weight}% of the requests{ready}")
        return f"{title}: {', '.join(parts)}."

    @property
    def actions(self) -> Actions:
        """What people ask of its rollout."""
        return read_actions(
            self.service.metadata.annotations,
            {entry.name: entry.marks.handled for entry in self.history},
            {entry.name: entry.marks.under_way for entry in self.history},
        )

    @property
    def origins(self) -> Collection[Origin]:
        """What its readable revisions were made from."""
        return {spec_origin(entry.content.spec_json) for entry in self.history if entry.content is not None}

    def entry(self, name: str) -> Entry | None:
        """The revision of this name."""
        return next((entry for entry in self.history if entry.name == name), None)

    def weight(self, name: str) -> int:
        """Percent of the requests that a revision gets."""
        traffic = self.service.status.traffic
        backends = traffic.backends if traffic is not None else ()
        return next((backend.weight for backend in backends if backend.revision == name), 0)


def judged_now(rollout: RolloutStatus) -> bool:
    """Whether a verdict on this step decides what comes next: it shares the requests with stable."""
    settled = {Reason.AWAITING_PROMOTION, Reason.PROMOTED_MANUALLY}
    return rollout.state in (RolloutState.ANALYSING, RolloutState.PAUSED) and rollout.reason not in settled


def returns(rollout: RolloutStatus) -> bool:
    """Whether an older revision comes back: it has no steps, and nothing is judged."""
    return rollout.state is RolloutState.PROMOTING and rollout.reason in _RETURNS


def gave_up_return(rollout: RolloutStatus) -> bool:
    """Whether an older revision, `from`, was to come back and did not: what served before still does."""
    took_over = rollout.reason in (Reason.PROMOTED, Reason.PROMOTED_MANUALLY)
    return rollout.state is RolloutState.PROMOTED and bool(rollout.from_revision) and not took_over


def service_of(raw: Mapping[str, Any]) -> InferenceService:
    """The service that the API server returned. Raises CommandError if it is not one that can be read."""
    service = parse(InferenceService, raw)
    if isinstance(service, InvalidObject):
        raise CommandError(
            f"inferenceservice {service.namespace}/{service.name} cannot be read: {service.message}"
        )
    return service


def subject_of(service: Mapping[str, Any], revisions: Iterable[Mapping[str, Any]]) -> Subject:
    """Both from what the API server returned. Raises CommandError."""
    entries = sorted((entry_of(raw) for raw in revisions), key=lambda entry: (entry.number, entry.name))
    return Subject(service_of(service), tuple(entries))


def entry_of(raw: Mapping[str, Any]) -> Entry:
    """The revision that the API server returned."""
    try:
        content = from_object(raw)
    except CorruptRevisionError:
        content = None
    return Entry(raw["metadata"]["name"], int(raw.get("revision") or 0), marks_of(raw), content)
