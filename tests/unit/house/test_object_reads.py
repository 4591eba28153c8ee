"""Kubernetes objects are read through the views of `tailbound.objects`."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import tailbound

FIELDS = frozenset(
    [
        "annotations",
        "conditions",
        "containerStatuses",
        "containers",
        "controller",
        "creationTimestamp",
        "deletionTimestamp",
        "generation",
        "initContainerStatuses",
        "initContainers",
        "labels",
        "lastState",
        "lastTransitionTime",
        "managedFields",
        "metadata",
        "nodeName",
        "ownerReferences",
        "phase",
        "podIP",
        "readyReplicas",
        "replicas",
        "resourceVersion",
        "spec",
        "state",
        "status",
        "uid",
    ]
)
ROOT = Path(tailbound.__file__).parent


def reads() -> Iterator[str]:
    for file in ROOT.rglob("*.py"):
        path = file.relative_to(ROOT).as_posix()
        if path.startswith("objects/"):
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            match node:
                case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=str(field)), *_]):
                    yield from [path] if field in FIELDS else []


def test_objects_are_read_through_views() -> None:
    assert Counter(reads()) == {}
