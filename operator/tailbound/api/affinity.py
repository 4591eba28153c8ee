"""Placement of the pods of a service: affinity to nodes and to other pods, and how they are spread.

The fields are those of Kubernetes. Affinity to pods is to those of the service's own namespace alone: with a
required anti-affinity to pods of every namespace, one tenant could keep the others from a zone.
"""

from enum import StrEnum
from typing import Annotated, TypeAlias

from pydantic import Field, StrictInt, StringConstraints

from tailbound.api.meta import DNS_SUBDOMAIN, NAME_PART, LabelValue, NodeLabels
from tailbound.api.schema import ATOMIC, Model, Rule, matches, whole_number

LabelKey = Annotated[
    str,
    StringConstraints(max_length=317),
    matches(
        f"(?:{DNS_SUBDOMAIN}/)?{NAME_PART}",
        "'{value}' is not a valid key: write NAME or DOMAIN/NAME, where NAME has at most 63 letters, digits, "
        "'-', '_' and '.'",
    ),
]
Weight = Annotated[StrictInt, whole_number("weight", 1, 100, "a weight")]


class LabelOperator(StrEnum):
    """How a label is compared."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


class LabelRequirement(Model):
    """A condition on a label."""

    rules = (
        Rule(
            cel="(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",
            holds=lambda each: (each.operator in ("In", "NotIn")) == bool(each.values),
            message="operator {value} does not fit values: In and NotIn need some, Exists and DoesNotExist "
            "have none",
            quoted="operator",
        ),
    )

    key: LabelKey
    """Key of the label."""

    operator: LabelOperator
    """In, NotIn, Exists or DoesNotExist."""

    values: Annotated[tuple[LabelValue, ...], Field(max_length=32), ATOMIC] = ()
    """Values; none with Exists and DoesNotExist."""


Requirements: TypeAlias = Annotated[tuple[LabelRequirement, ...], Field(min_length=1, max_length=16), ATOMIC]


class NodeSelectorTerm(Model):
    """Nodes that meet all of some conditions."""

    match_expressions: Requirements
    """Conditions on the labels of a node, all of which must be met."""


class NodeSelector(Model):
    """Nodes that one of some terms describes."""

    node_selector_terms: Annotated[tuple[NodeSelectorTerm, ...], Field(min_length=1, max_length=8), ATOMIC]
    """Terms, one of which must hold."""


class PreferredNodes(Model):
    """Nodes to prefer."""

    weight: Weight
    """Weight among the preferences, from 1 to 100."""

    preference: NodeSelectorTerm
    """Which nodes."""


class NodeAffinity(Model):
    """Nodes that must have the pods, or should. Those of the HardwareClass are a condition besides."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    """Nodes of which one must have the pod."""

    preferred_during_scheduling_ignored_during_execution: Annotated[
        tuple[PreferredNodes, ...], Field(max_length=8), ATOMIC
    ] = ()
    """Nodes of which one should have the pod."""


class LabelSelector(Model):
    """Pods of the namespace, by their labels."""

    match_labels: NodeLabels = Field(default_factory=dict)
    """Labels that a pod must have."""

    match_expressions: Annotated[tuple[LabelRequirement, ...], Field(max_length=16), ATOMIC] = ()
    """Conditions on its labels, all of which must be met."""


class PodAffinityTerm(Model):
    """The places of some pods of the namespace."""

    label_selector: LabelSelector
    """Which pods."""

    topology_key: LabelKey
    """Label of nodes whose value names the place, for example kubernetes.io/hostname."""


class PreferredPods(Model):
    """Places to prefer."""

    weight: Weight
    """Weight among the preferences, from 1 to 100."""

    pod_affinity_term: PodAffinityTerm
    """Which places."""


class PodAffinity(Model):
    """Places of other pods of the namespace."""

    required_during_scheduling_ignored_during_execution: Annotated[
        tuple[PodAffinityTerm, ...], Field(max_length=8), ATOMIC
    ] = ()
    """Conditions that the place of a pod must meet."""

    preferred_during_scheduling_ignored_during_execution: Annotated[
        tuple[PreferredPods, ...], Field(max_length=8), ATOMIC
    ] = ()
    """Conditions that the place of a pod should meet, with their weights."""


class Affinity(Model):
    """Affinity of the serving pods. Other pods are those of the namespace of the service."""

    node_affinity: NodeAffinity | None = None
    """Nodes to run on."""

    pod_affinity: PodAffinity | None = None
    """Pods to be near."""

    pod_anti_affinity: PodAffinity | None = None
    """Pods to be away from."""


class WhenUnsatisfiable(StrEnum):
    """The treatment of a pod that cannot be placed evenly."""

    SCHEDULE_ANYWAY = "ScheduleAnyway"
    DO_NOT_SCHEDULE = "DoNotSchedule"


class SpreadConstraint(Model):
    """How evenly the pods of a revision are spread."""

    topology_key: LabelKey
    """Label of nodes whose value names the place, for example topology.kubernetes.io/zone."""

    max_skew: Annotated[StrictInt, whole_number("maxSkew", 1, 100, "a difference of pods")] = 1
    """The largest difference between the numbers of pods in two places."""

    when_unsatisfiable: WhenUnsatisfiable = WhenUnsatisfiable.SCHEDULE_ANYWAY
    """ScheduleAnyway: pods are spread as evenly as there is room. DoNotSchedule: a pod waits for room."""


SpreadConstraints: TypeAlias = Annotated[
    tuple[SpreadConstraint, ...],
    Field(max_length=4),
    ATOMIC,
    Rule(
        cel="self.all(each, self.exists_one(other, other.topologyKey == each.topologyKey))",
        holds=lambda found: len({each.topology_key for each in found}) == len(found),
        message="a topologyKey is listed twice: keep one constraint for each",
    ),
]
