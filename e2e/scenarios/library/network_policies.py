"""Evaluates what NetworkPolicies allow, as the API documents it, for clusters whose network enforces none.

Only what Tailbound's policies use: ingress of pods from pods, by labels of pods and of namespaces, and ports
by number.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Object = Mapping[str, Any]


@dataclass(frozen=True)
class Endpoint:
    """A pod as NetworkPolicies see it."""

    namespace: str
    labels: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, pod: Object) -> "Endpoint":
        """The endpoint of a stored pod."""
        metadata = pod["metadata"]
        return cls(metadata["namespace"], metadata.get("labels", {}))


def allowed(policies: Iterable[Object], source: Endpoint, target: Endpoint, port: int) -> bool:
    """Whether `source` may open a TCP connection to this port of `target`.

    | policies that select the target | rules of them that match source and port | allowed |
    |---|---|---|
    | none | | yes |
    | some | none | no |
    | some | one | yes |
    """
    selecting = [
        policy
        for policy in policies
        if policy["metadata"]["namespace"] == target.namespace
        and _selects(policy["spec"]["podSelector"], target.labels)
        and "Ingress" in policy["spec"]["policyTypes"]
    ]
    rules = [rule for policy in selecting for rule in policy["spec"].get("ingress", ())]
    return not selecting or any(_matches(rule, source, target, port) for rule in rules)


def _matches(rule: Object, source: Endpoint, target: Endpoint, port: int) -> bool:
    ports = [each["port"] for each in rule.get("ports", ())]
    peers = rule.get("from", ())
    from_here = not peers or any(_is_peer(peer, source, target.namespace) for peer in peers)
    return from_here and (not ports or port in ports)


def _is_peer(peer: Object, source: Endpoint, namespace: str) -> bool:
    if "ipBlock" in peer:
        return False  # of no pod
    if "namespaceSelector" in peer:
        names = {"kubernetes.io/metadata.name": source.namespace}
        in_namespace = _selects(peer["namespaceSelector"], names)
    else:
        in_namespace = source.namespace == namespace
    return in_namespace and _selects(peer.get("podSelector", {}), source.labels)


def _selects(selector: Object, labels: Mapping[str, str]) -> bool:
    wanted = selector.get("matchLabels", {}).items() <= labels.items()
    return wanted and all(_holds(each, labels) for each in selector.get("matchExpressions", ()))


def _holds(expression: Object, labels: Mapping[str, str]) -> bool:
    value, operator = labels.get(expression["key"]), expression["operator"]
    match operator:
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "In":
            return value in expression["values"]
        case "NotIn":
            return value not in expression["values"]
        case _:
            raise ValueError(f"operator {operator} is unknown")
