"""The number of serving pods in the API: spec.scaling, and status.scaling."""

from enum import StrEnum
from typing import Annotated, ClassVar, Final

from pydantic import Field, StrictInt, StringConstraints

from tailbound.api.schema import Model, Rule, list_map

MOST_PODS: Final = 1000
"""The most pods of one revision."""


class ScalingMode(StrEnum):
    """Which component sets the number of pods."""

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
            quoted="max",
        ),
    )

    min: Annotated[StrictInt, _pods("min")] = 1
    """Minimum number of serving pods."""

    max: Annotated[StrictInt, _pods("max")] | None = None
    """Maximum number of serving pods. During a rollout the pods of the new revision come in addition."""

    mode: ScalingMode = ScalingMode.AUTO
    """auto: if max is above min, as many pods as the traffic needs to be answered within
    spec.sla.latency.p99; otherwise min pods. external: the number in replicas, which a
    HorizontalPodAutoscaler or KEDA sets through the scale subresource.
    """

    replicas: Annotated[StrictInt, _pods("replicas")] = 1
    """Number of pods asked for through the scale subresource, for example by kubectl scale. With mode auto it
    is a further minimum, limited by max. With mode external it is the number of pods, within min and max."""

    @property
    def automatic(self) -> bool:
        """Whether the number of pods follows the traffic."""
        return self.mode is ScalingMode.AUTO and self.max is not None and self.max > self.min

    @property
    def most(self) -> int:
        """The most pods of one revision."""
        return MOST_PODS if self.max is None else self.max

    @property
    def asked(self) -> int:
        """Number of pods that the spec asks for; the minimum if the number follows the traffic."""
        return min(max(self.min, self.replicas), self.most)


class RevisionScaling(Model):
    """The last decision on the number of pods of one revision, with its figures."""

    revision: Annotated[str, StringConstraints(max_length=63)]
    """Name of the ControllerRevision."""

    share: Annotated[StrictInt, Field(ge=1, le=100)]
    """Percent of the requests that the revision must be able to serve."""

    replicas: Annotated[StrictInt, Field(ge=0)]
    """Number of pods that was decided on."""

    needed: float | None = None
    """Number of pods that keep the P99 target at the forecast, before any other rule or bound."""

    arrivals_per_second: float | None = None
    """Arrival rate of its share of the requests."""

    forecast_per_second: float | None = None
    """Highest arrival rate that is expected until a new pod would be ready."""

    capacity_per_second: float | None = None
    """Rate of requests that one pod can serve."""

    rule: Annotated[str, StringConstraints(max_length=64)]
    """The rule that decided, as one CamelCase word."""

    limited_by: Annotated[str, StringConstraints(max_length=64)] = ""
    """The limit that kept the number of pods from following the traffic: Min, Max, Quota or Hardware."""

    message: Annotated[str, StringConstraints(max_length=4096)] = ""
    """The decision as a sentence."""

    arithmetic: Annotated[str, StringConstraints(max_length=1024)] = ""
    """The number of pods as an equation in which each figure has a name, followed by the parameters of the
    latency model."""


class ScalingStatus(Model):
    """The decisions on the number of pods. It changes only with a decision."""

    revisions: Annotated[tuple[RevisionScaling, ...], Field(max_length=16), list_map("revision")] = ()
    """The stable revision and the candidate."""
