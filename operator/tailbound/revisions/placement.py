"""Placement of the pods of a revision, by its hardware class and its service."""

from typing import Any, Final

from tailbound.api.affinity import SpreadConstraint
from tailbound.api.hardwareclass import HardwareClass
from tailbound.api.inferenceservice import InferenceServiceSpec
from tailbound.api.names import REVISION_LABEL
from tailbound.api.schema import Model

_DEFAULT_SPREAD: Final = tuple(
    SpreadConstraint(topology_key=key) for key in ("topology.kubernetes.io/zone", "kubernetes.io/hostname")
)


def placement(service: InferenceServiceSpec, hardware_class: HardwareClass) -> dict[str, Any]:
    """The fields of a pod spec that place it, besides the spread."""
    spec = hardware_class.spec
    fields: dict[str, Any] = {}
    if spec.node_selector:
        fields["nodeSelector"] = dict(spec.node_selector)
    if spec.tolerations:
        fields["tolerations"] = [_without_empty(toleration) for toleration in spec.tolerations]
    if spec.runtime_class_name is not None:
        fields["runtimeClassName"] = spec.runtime_class_name
    if spec.priority_class_name is not None:
        fields["priorityClassName"] = spec.priority_class_name
    affinity = _without_empty(service.affinity) if service.affinity is not None else {}
    if affinity:
        fields["affinity"] = affinity
    return fields


def spread(service: InferenceServiceSpec, revision: str) -> list[dict[str, Any]]:
    """The spread constraints, which count the pods of the revision.

    They are in every template, though one replica has nothing to spread: a change of the replica count makes
    no revision.
    """
    chosen = service.topology_spread_constraints
    return [_constraint(each, revision) for each in (_DEFAULT_SPREAD if chosen is None else chosen)]


def _constraint(constraint: SpreadConstraint, revision: str) -> dict[str, Any]:
    return {
        "maxSkew": constraint.max_skew,
        "topologyKey": constraint.topology_key,
        "whenUnsatisfiable": str(constraint.when_unsatisfiable),
        "labelSelector": {"matchLabels": {REVISION_LABEL: revision}},
    }


def _without_empty(part: Model) -> Any:
    return _pruned(part.model_dump(mode="json", by_alias=True, exclude_none=True))


def _pruned(value: Any) -> Any:
    """The value without fields that are empty, which the API server drops as well."""
    if isinstance(value, list):
        return [_pruned(each) for each in value]
    if not isinstance(value, dict):
        return value
    pruned = {key: _pruned(each) for key, each in value.items()}
    return {key: each for key, each in pruned.items() if each not in ("", [], {}) or key == "labelSelector"}
