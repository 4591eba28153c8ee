"""Stored objects become models, or sentences fit for a condition."""

from typing import Any

import pytest
from tailbound.api.conditions import ConditionStatus, ConditionType
from tailbound.api.hardwareclass import HardwareClass, TaintEffect
from tailbound.api.hosts import HostGrant
from tailbound.api.inferenceservice import InferenceService, InferenceServiceStatus
from tailbound.api.parsing import InvalidObject, parse
from tailbound.api.quantities import Duration, Quantity
from tailbound.api.schema import Model
from tailbound.api.servingruntime import ClusterServingRuntime, ServingRuntime

from tests.api_cases import REFUSALS
from tests.api_cases.objects import CLUSTER_RUNTIME, HARDWARE_CLASS, RUNTIME, SERVICE, changed
from tests.api_cases.refusal import Refusal

KINDS: dict[str, type[Model]] = {
    kind.__name__: kind
    for kind in (InferenceService, HardwareClass, HostGrant, ServingRuntime, ClusterServingRuntime)
}


def refused(raw: dict[str, Any]) -> str:
    outcome = parse(KINDS[raw["kind"]], raw)
    assert isinstance(outcome, InvalidObject)
    return outcome.message


def service(path: str, value: Any) -> InferenceService:
    parsed = parse(InferenceService, changed(SERVICE, path, value))
    assert isinstance(parsed, InferenceService), parsed
    return parsed


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refusal_has_the_sentence_of_the_api_server(case: Refusal) -> None:
    assert refused(case.object) == f"{case.field or 'the object'}: {case.message}"


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("spec", None, "spec is missing: set it"),
        ("spec.model.uri", None, "spec.model.uri is missing: set it"),
        (
            "spec.model.uri",
            7,
            "spec.model.uri: 7 cannot be used: write a string, in quotes where YAML reads something else",
        ),
        ("spec.stopped", "yes", "spec.stopped: 'yes' cannot be used: write true or false without quotes"),
        (
            "spec.scaling.min",
            "2",
            "spec.scaling.min: '2' cannot be used: write a whole number without quotes",
        ),
        (
            "spec.scaling.min",
            True,
            "spec.scaling.min: True cannot be used: write a whole number without quotes",
        ),
        ("spec.hosts", "a.example.com", "spec.hosts: 'a.example.com' cannot be used: write a list"),
        ("spec.hosts", ["a.b", "a.b"], "spec.hosts: 'a.b' is listed twice: remove one of the two"),
        (
            "spec.env",
            [{"name": "A"}, {"name": "A"}],
            "spec.env: 'A' is listed twice: remove one of the two",
        ),
        (
            "spec.annotations",
            {"example.com/a": 1},
            "spec.annotations[example.com/a]: 1 cannot be used: write a string, in quotes where YAML reads "
            "something else",
        ),
        ("spec.labels", [], "spec.labels: [] cannot be used: write an object"),
        ("spec.model", "m", "spec.model: 'm' cannot be used: write an object"),
        ("spec.timeout", 30, "spec.timeout: 30 must be a string: put it in quotes"),
        ("spec.resources.cpu", True, "spec.resources.cpu: True must be a string: put it in quotes"),
        (
            "spec.model.format",
            "a" * 33,
            f"spec.model.format: '{'a' * 33}' cannot be used: write at most 32 characters",
        ),
        (
            "spec.hosts",
            [f"h{number}.example.com" for number in range(17)],
            "spec.hosts: 17 entries cannot be used: list at most 16",
        ),
    ],
)
def test_wrong_type_or_size_of_a_service(path: str, value: Any, message: str) -> None:
    assert refused(changed(SERVICE, path, value)) == message


@pytest.mark.parametrize(
    ("base", "path", "value", "message"),
    [
        (
            HARDWARE_CLASS,
            "spec.resources",
            [{"name": "nvidia.com/gpu", "count": 0}],
            "spec.resources[0].count: 0 cannot be used: write at least 1",
        ),
        (
            HARDWARE_CLASS,
            "spec.tolerations",
            [{"key": "a", "operator": "Like"}],
            "spec.tolerations[0].operator: 'Like' cannot be used: write 'Exists' or 'Equal'",
        ),
        (RUNTIME, "spec.priority", 1001, "spec.priority: 1001 cannot be used: write at most 1000"),
        (CLUSTER_RUNTIME, "spec.formats", [], "spec.formats: 0 entries cannot be used: list at least 1"),
        (
            CLUSTER_RUNTIME,
            "spec.server.readinessProbe",
            {"httpGet": {"port": "http", "path": ""}},
            "spec.server.readinessProbe.httpGet.path: '' cannot be used: write at least 1 characters",
        ),
    ],
)
def test_wrong_type_or_size_elsewhere(base: dict[str, Any], path: str, value: Any, message: str) -> None:
    assert refused(changed(base, path, value)) == message


def test_several_mistakes_are_counted_and_three_are_told() -> None:
    raw = changed(
        SERVICE, "spec", {"timeout": "x", "stopped": 1, "sla": {"errorRate": "5"}, "scaling": {"min": 0}}
    )
    message = refused(raw)
    assert message.count("; ") == 3
    assert message.endswith("; and 2 more")


def test_invalid_object_says_which_it_is() -> None:
    outcome = parse(InferenceService, changed(SERVICE, "spec", None))
    assert isinstance(outcome, InvalidObject)
    assert (outcome.kind, outcome.namespace, outcome.name) == ("InferenceService", "default", "churn")


@pytest.mark.parametrize("raw", [{}, {"metadata": None}, {"metadata": {"name": 3}}, {"metadata": []}])
def test_an_object_without_sense_is_told_not_raised(raw: dict[str, Any]) -> None:
    assert isinstance(parse(InferenceService, raw), InvalidObject)


def test_fields_of_a_newer_version_are_ignored() -> None:
    assert service("spec.colour", {"mode": "dynamic"}) == service("spec.stopped", False)


def test_defaults_of_a_service() -> None:
    spec = service("spec.hosts", []).spec
    assert (spec.resources.cpu, spec.resources.memory) == (Quantity.parse("1"), Quantity.parse("2Gi"))
    assert (spec.scaling.min, spec.stopped, spec.hardware.classes, spec.runtime) == (1, False, (), None)


def test_stored_defaults_equal_absent_fields() -> None:
    stored = changed(SERVICE, "spec.resources", {"cpu": 1, "memory": "2048Mi"})
    stored = changed(stored, "spec.scaling", {"min": 1})
    parsed = parse(InferenceService, stored)
    assert isinstance(parsed, InferenceService)
    bare = parse(InferenceService, SERVICE)
    assert isinstance(bare, InferenceService)
    assert parsed.spec == bare.spec
    assert set(parsed.spec.model_dump(exclude_defaults=True)) == {"model"}


def test_a_dump_is_what_the_api_reads() -> None:
    spec = service("spec", {**SERVICE["spec"], "timeout": "1000ms", "hardware": {"class": ["gpu"]}}).spec
    dumped = spec.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    assert dumped == {"model": SERVICE["spec"]["model"], "timeout": "1s", "hardware": {"class": ["gpu"]}}


@pytest.mark.parametrize(
    ("spec", "timeout"),
    [
        ({}, "30s"),
        ({"sla": {"errorRate": "1%"}}, "30s"),
        ({"sla": {"latency": {"p99": "1ms"}}}, "1s"),
        ({"sla": {"latency": {"p99": "50ms"}}}, "1s"),
        ({"sla": {"latency": {"p99": "51ms"}}}, "1020ms"),
        ({"sla": {"latency": {"p99": "100ms"}}}, "2s"),
        ({"sla": {"latency": {"p99": "15s"}}}, "5m"),
        ({"sla": {"latency": {"p99": "1h"}}}, "5m"),
        ({"timeout": "7s", "sla": {"latency": {"p99": "100ms"}}}, "7s"),
        ({"timeout": "1ms"}, "1ms"),
    ],
)
def test_effective_timeout(spec: dict[str, Any], timeout: str) -> None:
    assert str(service("spec", {**SERVICE["spec"], **spec}).spec.effective_timeout()) == timeout


@pytest.mark.parametrize(
    "status",
    ["broken", {"replicas": "many"}, {"conditions": [{"type": "Ready"}]}, {"traffic": {"generation": 0}}],
)
def test_a_status_broken_by_hand_is_one_never_written(status: Any) -> None:
    assert service("status", status).status == InferenceServiceStatus()


def test_status_is_read_with_what_a_newer_operator_added() -> None:
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "Serving",
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    }
    status = service(
        "status",
        {
            "observedGeneration": 2,
            "traffic": {"generation": 3, "backends": [{"revision": "churn-r1-a", "weight": 100}]},
            "shadow": {"revision": "churn-r2-b"},
            "conditions": [ready],
        },
    ).status
    assert status.traffic is not None
    assert [(backend.revision, backend.weight) for backend in status.traffic.backends] == [
        ("churn-r1-a", 100)
    ]
    condition = status.condition(ConditionType.READY)
    assert condition is not None
    assert condition.status is ConditionStatus.TRUE
    assert status.condition(ConditionType.STALLED) is None


@pytest.mark.parametrize(
    "rollout", ["broken", {"state": "Analysing"}, {"state": "Mirroring", "revision": "churn-r2-b"}]
)
def test_a_rollout_that_cannot_be_read_takes_no_traffic_away(rollout: Any) -> None:
    traffic = {"generation": 3, "backends": [{"revision": "churn-r1-a", "weight": 100}]}
    status = service("status", {"traffic": traffic, "rollout": rollout}).status
    assert status.traffic is not None
    assert status.traffic.generation == 3
    assert status.rollout is None


ROLLOUT: dict[str, Any] = {
    "state": "Analysing",
    "revision": "churn-r2-b",
    "from": "churn-r1-a",
    "insteadOf": "",
    "step": 1,
    "stepWeight": 25,
    "passed": 5,
    "weight": 25,
    "reason": "Analysing",
    "message": "",
    "startedAt": "2026-01-02T03:04:05Z",
    "judgedBy": ["latency 100 ms"],
    "stepHeldBy": "churn-r6-4k2p-x1",
    "inPlace": True,
    "refused": {"reason": "QuotaExceeded", "message": "Service churn-r7-9xq1: exceeded quota"},
    "unrecorded": False,
    "highWater": 1,
    "findings": [
        {
            "measure": "latency",
            "outcome": "Wait",
            "allowed": 0.01,
            "assumed": False,
            "unacceptable": 0.02,
            "requests": 412.0,
            "bad": 9.0,
            "absolute": {"value": 1.5, "threshold": 5.3},
            "late": {"value": 0.5, "threshold": 6.7},
            "relative": {"value": -0.2, "threshold": 5.3},
            "passing": {"value": 0.1, "threshold": 3.0},
            "improvesBreach": False,
        }
    ],
    "metrics": [
        {
            "name": "accuracy",
            "outcome": "Wait",
            "samples": 12.0,
            "mean": 0.93,
            "unmatched": False,
            "bound": 0.9,
            "against": {"value": -0.5, "threshold": 5.7},
            "relative": {"value": -0.5, "threshold": 5.3},
            "passing": {"value": 1.1, "threshold": 3.0},
            "improvesBreach": False,
        }
    ],
    "evidence": {"readings": {"byPod": {}}},
}


def test_a_rollout_is_read_as_it_is_written() -> None:
    status = service("status", {"rollout": ROLLOUT}).status
    assert status.rollout is not None
    assert status.rollout.model_dump(mode="json", by_alias=True, exclude_none=True) == ROLLOUT


@pytest.mark.parametrize(
    ("rollout", "weights"),
    [
        ({}, ()),
        ({"strategy": "recreate"}, ()),
        ({"strategy": "canary"}, (5, 25, 50)),
        ({"strategy": "canary", "steps": [{"weight": 1}, {"weight": 99}]}, (1, 99)),
    ],
)
def test_weights_of_a_rollout(rollout: dict[str, Any], weights: tuple[int, ...]) -> None:
    assert service("spec.rollout", rollout).spec.rollout.weights == weights


@pytest.mark.parametrize(
    ("allowed", "namespace", "may"), [([], "a", True), (["a"], "a", True), (["b"], "a", False)]
)
def test_namespaces_of_a_hardware_class(allowed: list[str], namespace: str, may: bool) -> None:
    parsed = parse(HardwareClass, changed(HARDWARE_CLASS, "spec.allowedNamespaces", allowed))
    assert isinstance(parsed, HardwareClass)
    assert parsed.spec.allows(namespace) is may


def test_tolerations_are_read() -> None:
    raw = changed(HARDWARE_CLASS, "spec.tolerations", [{"key": "nvidia.com/gpu", "operator": "Exists"}])
    raw = changed(raw, "spec.tolerations.0.effect", "NoSchedule")
    parsed = parse(HardwareClass, raw)
    assert isinstance(parsed, HardwareClass)
    assert parsed.spec.tolerations[0].effect is TaintEffect.NO_SCHEDULE


@pytest.mark.parametrize("drain", [{"time": "20s"}, "20s"], ids=["as-now", "as-stored-by-an-earlier-version"])
def test_a_runtime_knows_its_formats_and_drain(drain: Any) -> None:
    parsed = parse(ClusterServingRuntime, changed(CLUSTER_RUNTIME, "spec.drain", drain))
    assert isinstance(parsed, ClusterServingRuntime)
    assert (parsed.spec.drain.mode, parsed.spec.drain.time) == ("server", Duration(20_000))
    assert (parsed.spec.serves("onnx"), parsed.spec.serves("xgboost")) == (True, False)
