"""Which runtime and which class a service gets."""

import copy
from typing import Any

import pytest
from tailbound.api.parsing import parse
from tailbound.reconcile import selection

from tests.support.simulated.objects import hardware_class, runtime, service
from tests.support.simulated.serving import settled
from tests.support.simulated.simulator import Simulator


def test_runtime_changes_are_told_by_one_condition_and_touch_nothing() -> None:
    simulator = settled()
    before = copy.deepcopy(simulator.objects)
    simulator.cluster_runtimes = {"onnxruntime": runtime(image="newer")}
    plan = simulator.reconcile()
    assert plan.writes == ()
    assert simulator.objects == before
    assert simulator.condition("RuntimeOutdated") == ("True", "RuntimeChanged")
    assert simulator.condition("Ready") == ("True", "Serving")
    assert [(event.type, event.reason) for event in plan.events] == [("Warning", "RuntimeChanged")]
    simulator.cluster_runtimes = {"onnxruntime": runtime()}
    simulator.reconcile()
    assert simulator.condition("RuntimeOutdated") == ("False", "UpToDate")


SELECTIONS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any], str]] = {
    "by priority": ({}, {}, {"a": runtime("a"), "b": runtime("b", priority=1)}, "ClusterServingRuntime b"),
    "by name": ({}, {}, {"b": runtime("b"), "a": runtime("a")}, "ClusterServingRuntime a"),
    "namespaced first": ({}, {"z": runtime("z", priority=-5)}, {"a": runtime("a")}, "ServingRuntime z"),
    "invalid ones serve no format": (
        {},
        {"z": {"metadata": {"name": "z"}, "spec": {}}},
        {"a": runtime("a")},
        "ClusterServingRuntime a",
    ),
    "by name, namespaced first": (
        {"runtime": {"name": "a"}},
        {"a": runtime("a")},
        {"a": runtime("a")},
        "ServingRuntime a",
    ),
    "by name, cluster-wide": (
        {"runtime": {"name": "b"}},
        {"a": runtime("a")},
        {"b": runtime("b")},
        "ClusterServingRuntime b",
    ),
}


@pytest.mark.parametrize(("fields", "own", "cluster", "title"), SELECTIONS.values(), ids=SELECTIONS)
def test_runtime_selection(
    fields: dict[str, Any], own: dict[str, Any], cluster: dict[str, Any], title: str
) -> None:
    simulator = Simulator(service=service(**fields), runtimes=own, cluster_runtimes=cluster)
    simulator.settle()
    (stored,) = simulator.of("ControllerRevision")
    assert stored["data"]["runtime"] == title


def test_of_many_runtimes_only_the_one_that_is_chosen_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    others = {f"other{number}": runtime(f"other{number}", priority=9) for number in range(30)}
    for each in others.values():
        each["spec"]["formats"] = [{"name": "gguf"}]
    same = {name: runtime(name, priority=-1) for name in ("a", "b")}
    simulator = Simulator(cluster_runtimes={**others, **same, "c": runtime("c")})
    parsed: list[Any] = []

    def counted(kind: Any, raw: Any) -> Any:
        parsed.append(raw["metadata"]["name"])
        return parse(kind, raw)

    monkeypatch.setattr(selection, "parse_shared", counted)
    simulator.plan()
    assert parsed == ["c", "cpu"]


@pytest.mark.parametrize(
    ("fields", "chosen"),
    [({}, "a"), ({"hardware": {"class": ["c"]}}, "c"), ({"hardware": {"class": []}}, "a")],
)
def test_class_selection(fields: dict[str, Any], chosen: str) -> None:
    classes = {n: hardware_class(n, default=n not in "Ac") for n in "bacA"}
    classes["A"]["metadata"]["annotations"] = {"tailbound.dev/is-default-class": "True"}
    simulator = Simulator(service=service(**fields), hardware_classes=classes)
    simulator.settle()
    (stored,) = simulator.of("ControllerRevision")
    assert stored["data"]["hardwareClass"] == chosen
