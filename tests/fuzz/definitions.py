"""Generated resources against the CRDs: refused with the field's name, or of use to the operator.

An object that the API server accepts is parsed, rendered and decided on by the operator's own code.
"""

import copy
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

from tailbound.api.crdgen import RESOURCES, crd
from tailbound.api.parsing import InvalidObject, parse

from tests.api_cases.objects import HARDWARE_CLASS, HOST_GRANT, RUNTIME, SERVICE
from tests.fuzz.outcome import Outcome
from tests.support.simulated.objects import NAME, NAMESPACE, UID
from tests.support.simulated.simulator import Simulator

Create = Callable[[Mapping[str, Any]], tuple[int, Any]]
"""Status code and body of the API server's answer to one POST that stores nothing."""
BASES: Final = (SERVICE, SERVICE, SERVICE, RUNTIME, RUNTIME, HARDWARE_CLASS, HOST_GRANT)
REFUSED: Final = 422
ODD: Final[tuple[Any, ...]] = (
    *("", " ", "a" * 300, "-", "é", "\u202e", "\x1b[31m", "{{ model.path }}", "{{ 1 // 0 }}", "{% for %}"),
    *(0, -1, 2**31, 2**63 - 1, 1.5, True, None, [], {}, ["a", "a"], {"a": {"b": "c"}}, [None], [[]]),
)
TEXTS: Final = (
    *("a", "onnx", "churn", "cpu", "A_B", "example.com", "*.example.com", "risk", "http", "metrics", "grpc"),
    *("/v2/models", "/tmp/x", "https://models.example.com/a.onnx", "s3://bucket/key", "a" * 64, "server:1"),
    *("{{ model.path }}", "{{ revision.name }}", "{{ missing }}", "5xx", "histogram_quantile(0.9, x)"),
)
QUANTITIES: Final = (
    "0",
    "1",
    "500m",
    "100ms",
    "1s",
    "30s",
    "5m",
    "1h",
    "99.9",
    "1%",
    "10%",
    "64Mi",
    "1Gi",
    "1e3",
)


def _value(random: Random, schema: Mapping[str, Any], depth: int = 0) -> Any:
    """A value that mostly has the type of the schema; rules beyond the type may refuse it."""
    if random.random() < 0.03:
        return copy.deepcopy(random.choice(ODD))
    if "enum" in schema:
        return random.choice(schema["enum"])
    if schema.get("x-kubernetes-int-or-string"):
        return random.choice((*QUANTITIES, 1, 2, 100))
    make = _OF_TYPE.get(schema.get("type", ""), _text)
    return make(random, schema, depth)


def _object(random: Random, schema: Mapping[str, Any], depth: int) -> Any:
    required = schema.get("required", [])
    kept = {
        name: _value(random, each, depth + 1)
        for name, each in schema.get("properties", {}).items()
        if name in required or random.random() < 0.5 / (depth + 1)
    }
    if "additionalProperties" in schema:
        keys = random.sample(TEXTS, random.randrange(3))
        kept |= {key: _value(random, schema["additionalProperties"], depth + 1) for key in keys}
    return kept


def _array(random: Random, schema: Mapping[str, Any], depth: int) -> Any:
    return [_value(random, schema["items"], depth + 1) for _ in range(random.choice((0, 1, 1, 2, 5)))]


def _integer(random: Random, schema: Mapping[str, Any], _: int) -> Any:
    least, most = schema.get("minimum", 0), schema.get("maximum", 100)
    return random.choice((least, most, least - 1, most + 1, random.randint(least, max(least, most))))


def _text(random: Random, _: Mapping[str, Any], __: int) -> Any:
    return random.choice(random.choice((TEXTS, QUANTITIES)))


def _boolean(random: Random, _: Mapping[str, Any], __: int) -> Any:
    return random.random() < 0.5


_OF_TYPE: Final[Mapping[str, Callable[[Random, Mapping[str, Any], int], Any]]] = {
    "object": _object,
    "array": _array,
    "integer": _integer,
    "string": _text,
    "boolean": _boolean,
}
_RESOURCES: Final = {resource.kind: resource for resource in RESOURCES}
_SCHEMAS: Final = {
    kind: crd(resource)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    for kind, resource in _RESOURCES.items()
}


def _change(random: Random, node: dict[str, Any], schema: Mapping[str, Any]) -> None:
    """Set one field of the spec, or one below it."""
    name, field = random.choice(list(schema["properties"].items()))
    child = node.get(name)
    if isinstance(child, dict) and field.get("properties") and random.random() < 0.7:
        _change(random, child, field)
    elif field.get("properties") and random.random() < 0.5:
        node[name] = {}
        _change(random, node[name], field)
    else:
        node[name] = _value(random, field)


def generated(random: Random) -> dict[str, Any]:
    """An object of ours with up to four changes."""
    base = copy.deepcopy(random.choice(BASES))
    for _ in range(random.choice((1, 1, 1, 2, 2, 3, 4))):
        _change(random, base["spec"], _SCHEMAS[base["kind"]])
    return base


def fuzz(seed: int, count: int, create: Create) -> Outcome:
    """Send `count` objects to the API server, and give the operator those that it accepts."""
    random, outcome = Random(seed), Outcome(seed)
    for _ in range(count):
        _case(generated(random), create, outcome)
    return outcome


def _case(sent: dict[str, Any], create: Create, outcome: Outcome) -> None:
    code, body = create(sent)
    outcome.ended(f"{sent['kind']} {code}")
    if code == REFUSED:
        causes = body.get("details", {}).get("causes", [])
        if not causes or not all(each.get("field") and each.get("message") for each in causes):
            outcome.fault(f"refused without a field: {body.get('message')} for {sent['spec']}")
    elif code != 201:
        outcome.fault(f"{code}: {body.get('message')} for {sent['spec']}")
    else:
        _used(body, outcome)


def _used(stored: dict[str, Any], outcome: Outcome) -> None:
    try:
        found = parse(_RESOURCES[stored["kind"]].model, stored)
        if isinstance(found, InvalidObject):
            outcome.fault(f"accepted, but {found.message}: {stored['spec']}")
            return
        outcome.answers[decided(stored)] += 1
    except Exception as error:
        outcome.fault(f"{error!r} for {stored['kind']} {stored['spec']}")


def decided(stored: Mapping[str, Any]) -> str:
    """What the operator says of readiness in a cluster that has this object and all else that it needs."""
    simulator = Simulator()
    metadata = {**stored["metadata"], "annotations": {"tailbound.dev/is-default-class": "true"}}
    if stored["kind"] == "InferenceService":
        own = {"name": NAME, "namespace": NAMESPACE, "uid": UID, "resourceVersion": "1", "generation": 1}
        simulator.service = {**stored, "metadata": own}
    elif stored["kind"] == "ServingRuntime":
        simulator.cluster_runtimes = {"onnxruntime": stored}
    elif stored["kind"] == "HardwareClass":
        simulator.hardware_classes = {stored["metadata"]["name"]: {**stored, "metadata": metadata}}
    simulator.reconcile()
    return f"decided {simulator.condition('Ready')[1]}"
