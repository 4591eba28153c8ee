"""Situations for tables: everything at rest but for what a row says."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from tailbound.api.rejection import Rejection
from tailbound.api.rollout import RolloutSpec, RolloutState
from tailbound.api.traffic import Backend, TrafficStatus
from tailbound.judge.analysis import Verdict
from tailbound.objects.kubectl import Commands
from tailbound.rollout.actions import read_actions
from tailbound.rollout.machine import advance, begin
from tailbound.rollout.model import RevisionState, RolloutInput, RolloutStep
from tailbound.rollout.progress import RolloutProgress
from tailbound.rollout.sizing import fixed

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
GONE = RevisionState(deployed=False)


def ago(seconds: float) -> datetime:
    """The time so long before NOW."""
    return NOW - timedelta(seconds=seconds)


def to(*names: str, generation: int = 5, **weights: int) -> TrafficStatus:
    """All requests to one revision, or these weights."""
    shares = dict.fromkeys(names, 100) | weights
    backends = tuple(Backend(revision=name, weight=weight) for name, weight in shares.items())
    return TrafficStatus(generation=generation, backends=backends)


def state(ready: int = 0, **fields: Any) -> RevisionState:
    """A deployed revision."""
    if fields.pop("rejected", False):
        fields["rejection"] = Rejection("new", "Slow", "it was slow")
    return RevisionState(**{"number": 1, "deployed": True, "ready": ready, **fields})


def situation(
    revisions: dict[str, RevisionState],
    traffic: TrafficStatus | None = None,
    *,
    annotations: dict[str, str] | None = None,
    handled: tuple[str, ...] = (),
    spec: dict[str, Any] | None = None,
    replicas: int = 2,
    **fields: Any,
) -> RolloutInput:
    """Revision `old` is stable and the spec wants `new`, two pods of it."""
    asked = {f"tailbound.dev/{action}": value for action, value in (annotations or {}).items()}
    done = {f"tailbound.dev/{action}": asked[f"tailbound.dev/{action}"] for action in handled}
    actions = read_actions(asked, dict.fromkeys(revisions, done), {})
    base = RolloutInput(
        commands=Commands("risk", "churn"),
        desired="new",
        stable="old" if "old" in revisions else None,
        revisions=revisions,
        sizing=fixed(replicas),
        stopped=False,
        refused=None,
        traffic=traffic,
        acknowledged=False,
        first_generation=1,
        spec=RolloutSpec.model_validate(spec or {}),
        stored=None,
        actions=actions,
        demands=None,
        followed=True,
        timeout=timedelta(seconds=2),
        time=NOW,
    )
    return replace(base, **fields)


def rollout(current: str = "Analysing", **fields: Any) -> RolloutProgress:
    """The stored rollout from `old` to `new`, begun long ago with pods that came at once."""
    known = {
        "revision": "new",
        "from_revision": "old",
        "started_at": ago(100),
        "progress_at": ago(90),
        "high_water": 1,
    }
    return RolloutProgress(state=RolloutState(current), **{**known, **fields})


def step_of(now: RolloutInput, verdict: Verdict | None = None) -> RolloutStep:
    """One step."""
    who, stored = begin(now)
    return advance(now, who, stored, verdict or Verdict(None))
