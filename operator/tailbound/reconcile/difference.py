"""Whether an apply would change anything: does the live object already hold every owned field?

The API server adds defaults, writes quantities its own way and leaves empty values out; other people add
fields, annotations and list items. None of that is a difference. So the comparison goes over the body that
would be applied and asks the live object for each of its values. A map that server-side apply replaces as a
whole is compared as a whole: a key that a user adds to a selector leaves a Service without pods.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from tailbound.api.quantities import Quantity

# Lists that server-side apply merges by a key: other managers' items stay, and order is theirs.
_LIST_KEYS: Final = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "imagePullSecrets": "name",
    "volumeMounts": "mountPath",
    "topologySpreadConstraints": "topologyKey",
    "ownerReferences": "uid",
}
# `ports` is keyed by `port` in a Service and by `containerPort` in a container.
_PORT_KEYS: Final = ("port", "containerPort")
# Maps that server-side apply replaces as a whole: a further key in one is a difference.
_ATOMIC_MAPS: Final = frozenset({"selector", "labelSelector", "namespaceSelector", "nodeSelector"})
_QUANTITIES: Final = frozenset({"requests", "limits"})
_EMPTY: Final[tuple[Any, ...]] = (None, "", 0, [], {})


def differs(wanted: Mapping[str, Any], live: Mapping[str, Any]) -> bool:
    """True if applying `wanted` over `live` would change an owned field."""
    return not _holds_map(wanted, live, _holds)


def first_difference(wanted: Mapping[str, Any], live: Mapping[str, Any]) -> tuple[str, Any, Any] | None:
    """The path, the wanted and the live value of the first field that an apply would change, if there is one.

    The path ends at a list, and at a map that is compared as a whole.
    """
    for field, value in wanted.items():
        other = live.get(field)
        if _holds(value, other, field):
            continue
        if isinstance(value, dict) and isinstance(other, dict) and field not in _ATOMIC_MAPS | _QUANTITIES:
            inner = first_difference(value, other)
            if inner is not None:
                return f"{field}.{inner[0]}", inner[1], inner[2]
        return field, value, other
    return None


def _holds(wanted: Any, live: Any, field: str) -> bool:
    if wanted == live:  # most of an idle object, at the speed of C
        return True
    if live is None:
        return wanted in _EMPTY
    if field in _ATOMIC_MAPS:
        return False
    if isinstance(wanted, dict) and isinstance(live, dict):
        return _holds_map(wanted, live, _holds_quantity if field in _QUANTITIES else _holds)
    if isinstance(wanted, list) and isinstance(live, list):
        return _holds_list(wanted, live, field)
    return False


def _holds_map(
    wanted: Mapping[str, Any], live: Mapping[str, Any], holds: Callable[[Any, Any, str], bool]
) -> bool:
    return all(map(holds, wanted.values(), map(live.get, wanted), wanted))


def _holds_quantity(wanted: Any, live: Any, _field: str) -> bool:
    try:
        return Quantity.parse(str(wanted)) == Quantity.parse(str(live))
    except ValueError:
        return False


def _holds_list(wanted: list[Any], live: list[Any], field: str) -> bool:
    key = _list_key(wanted, field)
    if key is None:
        return len(wanted) == len(live) and all(
            _holds(item, other, "") for item, other in zip(wanted, live, strict=True)
        )
    others = {item.get(key): item for item in live if isinstance(item, dict)}
    return all(_holds(item, others.get(item.get(key)), "") for item in wanted)


def _list_key(wanted: list[Any], field: str) -> str | None:
    if field == "ports" and wanted:
        return next((key for key in _PORT_KEYS if key in wanted[0]), None)
    return _LIST_KEYS.get(field)
