"""The generator: what it writes, what it refuses, and that the checked-in files are what it writes."""

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, StrictInt, StringConstraints
from tailbound.api.crdgen import RESOURCES, crd, main
from tailbound.api.crdgen_schema import NotStructuralError, structural
from tailbound.api.meta import ObjectMeta
from tailbound.api.schema import ATOMIC, PRESERVE_UNKNOWN, SET, InOrder, Model, Rule, list_map, matches

Short = Annotated[str, StringConstraints(max_length=8)]


class Colour(StrEnum):
    RED = "Red"
    BLUE = "Blue"


class Item(Model):
    """One item."""

    rules = (Rule(cel="self.name != 'x'", holds=lambda item: item.name != "x", message="x is taken"),)

    name: Short
    """Name of the item."""


class Everything(Model):
    """All that
    a schema can hold."""

    metadata: ObjectMeta
    short: Annotated[Short, matches("[a-z]+", "'{value}' is 100% wrong")] = "a"
    ordered: Annotated[Short, InOrder(matches("a.*", "no a"), matches(".*b", "no b"))] | None = None
    number: Annotated[StrictInt, Field(ge=1, le=5)] = 2
    """How many."""
    colour: Colour = Colour.RED
    item: Item | None = None
    """The item that counts."""
    items: Annotated[tuple[Item, ...], Field(max_length=3), list_map("name")] = ()
    names: Annotated[tuple[Short, ...], Field(max_length=3), SET] = ()
    words: Annotated[tuple[Short, ...], Field(max_length=3), ATOMIC] = ()
    labels: Annotated[dict[str, Short], Field(max_length=3)] = Field(default_factory=dict)


ITEM = {
    "description": "One item.",
    "type": "object",
    "required": ["name"],
    "x-kubernetes-validations": [{"rule": "self.name != 'x'", "message": "x is taken"}],
    "properties": {"name": {"description": "Name of the item.", "type": "string", "maxLength": 8}},
}


PROPERTIES: dict[str, Any] = {
    "metadata": {"type": "object"},
    "short": {
        "type": "string",
        "default": "a",
        "maxLength": 8,
        "x-kubernetes-validations": [
            {
                "rule": 'self.matches("^(?:[a-z]+)$")',
                "message": "the value is 100% wrong",
                "messageExpression": "\"'%s' is 100%% wrong\".format([self])",
            }
        ],
    },
    "ordered": {
        "type": "string",
        "maxLength": 8,
        "x-kubernetes-validations": [
            {"rule": 'self.matches("^(?:a.*)$")', "message": "no a"},
            {
                "rule": '!(self.matches("^(?:a.*)$")) || (self.matches("^(?:.*b)$"))',
                "message": "no b",
            },
        ],
    },
    "number": {
        "description": "How many. Default: 2.",
        "type": "integer",
        "default": 2,
        "minimum": 1,
        "maximum": 5,
    },
    "colour": {"type": "string", "default": "Red", "enum": ["Red", "Blue"]},
    "item": {**ITEM, "description": "The item that counts."},
    "items": {
        "type": "array",
        "maxItems": 3,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": ITEM,
    },
    "names": {
        "type": "array",
        "maxItems": 3,
        "x-kubernetes-list-type": "set",
        "items": {"type": "string", "maxLength": 8},
    },
    "words": {
        "type": "array",
        "maxItems": 3,
        "x-kubernetes-list-type": "atomic",
        "items": {"type": "string", "maxLength": 8},
    },
    "labels": {
        "type": "object",
        "maxProperties": 3,
        "additionalProperties": {"type": "string", "maxLength": 8},
    },
}


def test_everything_becomes_structural() -> None:
    schema = structural(Everything)
    properties = schema.pop("properties")
    assert schema == {
        "description": "All that a schema can hold.",
        "type": "object",
        "required": ["metadata"],
    }
    assert properties == PROPERTIES


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        (str, "Bad.field: maxLength is missing"),
        (dict[str, Short], "Bad.field: maxProperties is missing"),
        (tuple[Short, ...], "Bad.field: a list needs ATOMIC, SET or list_map"),
        (Annotated[tuple[Short, ...], ATOMIC], "Bad.field: maxItems is missing"),
        (tuple[Short, int], "Bad.field: prefixItems has no place in a structural schema"),
        (Short | int, "Bad.field: a union has no place in a structural schema"),
        (Literal["a"], "Bad.field: const has no place in a structural schema"),
        (Any, "Bad.field: the type is missing"),
    ],
)
def test_what_cannot_be_said_is_refused(annotation: Any, message: str) -> None:
    bad = type("Bad", (Model,), {"__annotations__": {"metadata": ObjectMeta, "field": annotation}})
    with pytest.raises(NotStructuralError, match=message.replace(".", r"\.")):
        structural(bad)


def nodes(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield schema
    for child in schema.get("properties", {}).values():
        yield from nodes(child)
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield from nodes(schema[key])


def schema_of(kind: str) -> dict[str, Any]:
    resource = next(resource for resource in RESOURCES if resource.kind == kind)
    schema: dict[str, Any] = crd(resource)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


@pytest.mark.parametrize("kind", [resource.kind for resource in RESOURCES])
def test_every_field_that_people_write_is_described(kind: str) -> None:
    spec = schema_of(kind)["properties"]["spec"]
    undescribed = [
        f"{node.get('description', '?')}.{name}"
        for node in nodes(spec)
        for name, child in node.get("properties", {}).items()
        if "description" not in child
    ]
    assert undescribed == []


def test_status_gets_nothing_from_the_api_server() -> None:
    assert [
        node for node in nodes(schema_of("InferenceService")["properties"]["status"]) if "default" in node
    ] == []


def test_empty_defaults_are_not_stored() -> None:
    spec = schema_of("InferenceService")["properties"]["spec"]["properties"]
    defaults = {name: child["default"] for name, child in spec.items() if "default" in child}
    assert defaults.pop("rollout") == {
        "strategy": "blueGreen",
        "capacity": "surge",
        "promotion": "automatic",
        "signature": "any",
        "onInconclusive": "pause",
        "minStepTime": "30s",
        "maxStepTime": "30m",
        "progressDeadline": "10m",
        "restartLimit": 3,
        "scaleDownDelay": "30s",
        "historyLimit": 10,
        "analysis": {
            "source": "gateway",
            "policy": "both",
            "warmupRequests": 10,
            "minErrorRate": "1%",
            "dataTimeout": "1m",
        },
    }
    assert defaults == {
        "resources": {"cpu": "1", "memory": "2Gi"},
        "batching": {"mode": "none"},
        "overload": "queue",
        "scaling": {"min": 1, "mode": "auto", "replicas": 1},
        "stopped": False,
    }


def test_only_a_place_for_anything_keeps_what_is_unknown() -> None:
    status = schema_of("InferenceService")["properties"]["status"]
    evidence = status["properties"]["rollout"]["properties"]["evidence"]
    assert (evidence["type"], evidence[PRESERVE_UNKNOWN]) == ("object", True)
    assert [node for node in nodes(status) if PRESERVE_UNKNOWN in node] == [evidence]


def test_names_are_told_apart() -> None:
    short = [name for resource in RESOURCES for name in resource.short_names]
    assert len(short) == len(set(short))
    # Of Kubernetes itself and of KServe.
    assert not {"cs", "csr", "sa", "sc", "svc", "isvc", "rc", "rs", "pc"} & set(short)


def test_check_names_what_is_stale_missing_and_foreign(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path)]) == 0
    assert main(["--check", str(tmp_path)]) == 0
    stale, missing = (
        tmp_path / f"tailbound.dev_{plural}.yaml" for plural in ("hardwareclasses", "servingruntimes")
    )
    stale.write_text(stale.read_text() + "\n")
    missing.unlink()
    (tmp_path / "foreign.yaml").write_text("")
    assert main(["--check", str(tmp_path)]) == 1
    assert capsys.readouterr().err.splitlines() == [
        f"{tmp_path / 'foreign.yaml'} is not generated from a model: remove it",
        f"{stale} differs from its model",
        f"{missing} is missing",
        f"run: python -m tailbound.api.crdgen {tmp_path}",
    ]
