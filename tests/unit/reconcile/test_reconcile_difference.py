"""What is a difference, and what only looks like one."""

import copy
from typing import Any

import pytest
from tailbound.reconcile.difference import differs, first_difference

from tests.support.simulated.objects import as_stored
from tests.support.simulated.simulator import Simulator

SAME: dict[str, tuple[Any, Any]] = {
    "defaults of the server": ({"a": 1}, {"a": 1, "b": 2}),
    "an annotation of somebody": ({"annotations": {"a": "1"}}, {"annotations": {"a": "1", "b": "2"}}),
    "a quantity written anew": ({"limits": {"cpu": "1000m"}}, {"limits": {"cpu": "1"}}),
    "a large quantity": ({"requests": {"memory": "2048Mi"}}, {"requests": {"memory": "2Gi"}}),
    "a device count": ({"limits": {"nvidia.com/gpu": "2"}}, {"limits": {"nvidia.com/gpu": 2}}),
    "an empty value left out": ({"env": [{"name": "A", "value": ""}]}, {"env": [{"name": "A"}]}),
    "false left out": ({"readOnly": False}, {}),
    "an empty list left out": ({"tolerations": []}, {}),
    "no value for no value": ({"a": None}, {}),
    "a sidecar of somebody": (
        {"containers": [{"name": "a"}]},
        {"containers": [{"name": "x"}, {"name": "a"}]},
    ),
    "an order of the server": (
        {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
        {"env": [{"name": "B", "value": "2"}, {"name": "A", "value": "1"}]},
    ),
    "a mount of somebody": (
        {"volumeMounts": [{"name": "m", "mountPath": "/a"}]},
        {"volumeMounts": [{"name": "m", "mountPath": "/b"}, {"name": "m", "mountPath": "/a"}]},
    ),
    "a port of the server": ({"ports": [{"port": 80}]}, {"ports": [{"port": 80, "nodePort": 3}]}),
    "another owner beside us": (
        {"ownerReferences": [{"uid": "u"}]},
        {"ownerReferences": [{"uid": "x"}, {"uid": "u"}]},
    ),
}
DIFFERENT: dict[str, tuple[Any, Any]] = {
    "another value": ({"a": 1}, {"a": 2}),
    "another type": ({"port": "80"}, {"port": 80}),
    "missing": ({"a": 1}, {}),
    "missing map": ({"a": {"b": "c"}}, {}),
    "another quantity": ({"limits": {"cpu": "1"}}, {"limits": {"cpu": "2"}}),
    "no quantity": ({"limits": {"cpu": "1"}}, {"limits": {"cpu": "one"}}),
    "a container gone": ({"containers": [{"name": "a"}]}, {"containers": []}),
    "a container edited": (
        {"containers": [{"name": "a", "image": "i"}]},
        {"containers": [{"name": "a", "image": "j"}]},
    ),
    "an argument more": ({"args": ["a"]}, {"args": ["a", "b"]}),
    "arguments in another order": ({"args": ["a", "b"]}, {"args": ["b", "a"]}),
    "a key more in the selector of a Service": ({"selector": {"a": "1"}}, {"selector": {"a": "1", "b": "2"}}),
    "a key more in the selector of a budget": (
        {"selector": {"matchLabels": {"a": "1"}}},
        {"selector": {"matchLabels": {"a": "1", "b": "2"}}},
    ),
    "an expression beside the labels": (
        {"labelSelector": {"matchLabels": {"a": "1"}}},
        {"labelSelector": {"matchLabels": {"a": "1"}, "matchExpressions": [{"key": "b"}]}},
    ),
    "a key more for nodes": ({"nodeSelector": {"a": "1"}}, {"nodeSelector": {"a": "1", "b": "2"}}),
    "a list where a map was": ({"a": {}}, {"a": []}),
    "replicas gone to zero": ({"replicas": 1}, {"replicas": 0}),
}


@pytest.mark.parametrize(("wanted", "live"), SAME.values(), ids=SAME)
def test_no_difference(wanted: Any, live: Any) -> None:
    assert not differs(wanted, live)
    assert first_difference(wanted, live) is None


@pytest.mark.parametrize(("wanted", "live"), DIFFERENT.values(), ids=DIFFERENT)
def test_difference(wanted: Any, live: Any) -> None:
    assert differs(wanted, live)
    found = first_difference(wanted, live)
    assert found is not None
    path, value, other = found
    for name in path.split("."):
        wanted, live = wanted[name], live.get(name)
    assert (value, other) == (wanted, live)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, dict):
        return [leaf for key, item in value.items() for leaf in leaves(item, (*path, key))]
    if isinstance(value, list):
        return [leaf for index, item in enumerate(value) for leaf in leaves(item, (*path, index))]
    return [path]


def test_every_owned_leaf_of_every_child_counts() -> None:
    """Whatever value somebody changes in a child is seen, and what the server makes of it is not."""
    simulator = Simulator()
    simulator.edit(scaling={"min": 2})
    for write in simulator.plan().writes:
        body = write.body  # type: ignore[union-attr]
        assert not differs(body, as_stored(body))
        for path in leaves(body):
            changed = copy.deepcopy(dict(body))
            target: Any = changed
            for step in path[:-1]:
                target = target[step]
            target[path[-1]] = "changed"
            assert differs(body, changed), path
