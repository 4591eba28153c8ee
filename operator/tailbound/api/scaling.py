"""How many pods serve: what is wanted, and what was decided."""

from enum import StrEnum
from typing import Annotated, ClassVar, Final

from pydantic import Field, StrictInt, StringConstraints

from tailbound.api.schema import Model, Rule, list_map

MOST_PODS: Final = 1000
"""The most pods of one revision."""


class ScalingMode(StrEnum):
    """Who decides how many pods serve."""

    AUTO = "auto"
    EXTERNAL = "external"


def _pods(field: str) -> Rule:
    return Rule(
        cel=f"self >= 1 && self <= {MOST_PODS}",
        holds=lambda pods: 1 <= pods <= MOST_PODS,
        message=f"{field} is {{value}}: write a number of pods from 1 to {MOST_PODS}; to stop the service, "
        "set spec.stopped to true",
    )


class Scaling(Model):
    """How many pods serve."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.max) || self.max < 1 || self.max >= self.min",
            holds=lambda scaling: scaling.max is None or scaling.max < 1 or scaling.max >= scaling.min,
            message="max is {value}, which is less than min: raise max or lower min",
            value_cel="self.max",
            value=lambda scaling: scaling.max,
        ),
    )

    min: Annotated[StrictInt, _pods("min")] = 1
    """The fewest serving pods."""

    max: Annotated[StrictInt, _pods("max")] | None = None
    """The most serving pods. A rollout needs those of the new revision besides."""

    mode: ScalingMode = ScalingMode.AUTO
    """auto: with max above min as many pods as the traffic needs to be answered within spec.sla.latency.p99,
    else as many as min. external: as many as replicas asks for, which a HorizontalPodAutoscaler or KEDA sets
    through the scale subresource."""

    replicas: Annotated[StrictInt, _pods("replicas")] = 1
    """Pods that are asked for through the scale subresource, as kubectl scale does: never fewer than
    these, but never more than max. With mode external exactly these, within min and max."""

    @property
    def automatic(self) -> bool:
        """The traffic decides."""
        return self.mode is ScalingMode.AUTO and self.max is not None and self.max > self.min

    @property
    def most(self) -> int:
        """The most pods of one revision."""
        return MOST_PODS if self.max is None else self.max

    @property
    def asked(self) -> int:
        """Pods of the revision that serves, as far as the spec says; the fewest where the traffic decides."""
        return min(max(self.min, self.replicas), self.most)


class RevisionScaling(Model):
    """What one revision was sized by when its pods were last decided on."""

    revision: Annotated[str, StringConstraints(max_length=63)]
    """Name of the ControllerRevision."""

    share: Annotated[StrictInt, Field(ge=1, le=100)]
    """Percent of the requests that it must be able to carry."""

    replicas: Annotated[StrictInt, Field(ge=0)]
    """Pods that it is to have."""

    needed: float | None = None
    """Pods that hold the P99 target at the forecast, whatever the bounds."""

    arrivals_per_second: float | None = None
    """Requests that arrived for its share."""

    forecast_per_second: float | None = None
    """The most that is expected by the time that a further pod would be ready."""

    capacity_per_second: float | None = None
    """Requests that one pod can answer."""

    rule: Annotated[str, StringConstraints(max_length=64)]
    """The rule that decided, in one word."""

    limited_by: Annotated[str, StringConstraints(max_length=64)] = ""
    """What kept it from having as many pods as the traffic asks for: Min, Max, Quota or Hardware."""

    message: Annotated[str, StringConstraints(max_length=4096)] = ""
    """The decision in a sentence."""

    arithmetic: Annotated[str, StringConstraints(max_length=1024)] = ""
    """Where the number of pods comes from: arithmetic that comes out, with a word before each figure. Then
    what the latency model reckons with."""


class ScalingStatus(Model):
    """What the pods are sized by. It changes only with a decision."""

    revisions: Annotated[tuple[RevisionScaling, ...], Field(max_length=16), list_map("revision")] = ()
    """The revision that serves, and the one that is to replace it."""
