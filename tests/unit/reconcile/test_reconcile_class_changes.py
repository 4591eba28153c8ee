"""Whatever happens to hardware classes and their lists, what serves stays, and room ends waits and moves."""

from datetime import timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.effort import effort
from tests.support.simulated.objects import hardware_class, model, service
from tests.support.simulated.simulator import Simulator

NAMES = ("a", "b", "c")
MINUTE = timedelta(minutes=1)
LISTS = st.permutations(NAMES).flatmap(lambda names: st.integers(1, 3).map(lambda n: list(names[:n])))
CHANGES = ("delete", "restore", "uncounted", "close", "change", "claim")
RETURNS = {"return": "whenRoom", "returnAfter": "1m"}
EVENTS = st.one_of(
    st.tuples(st.sampled_from([*CHANGES, "full", "roomy"]), st.sampled_from(NAMES)),
    st.tuples(st.just("list"), LISTS),
    st.tuples(st.just("model"), st.sampled_from("bcd")),
    st.tuples(st.sampled_from(["crash", "wait"]), st.integers(0, 12)),
    st.tuples(st.just("cache"), st.sampled_from(["1Gi", "2Gi", None])),
    st.tuples(
        st.sampled_from(["lost", "pause", "go", "stop", "resume", "rollback", "nodes", "policy", "claims"]),
        st.none(),
    ),
)


def made(name: str, **fields: Any) -> dict[str, Any]:
    raw = hardware_class(name, default=False, resources=[{"name": f"x.y/{name}", "count": 1}], **fields)
    return {**raw, "status": {"room": 9}}


def live(simulator: Simulator, time: timedelta) -> None:
    end = simulator.now + time
    while simulator.now < end:
        simulator.work()
        plan = simulator.reconcile()
        if plan.writes or plan.status is not None:
            continue
        if plan.requeue_after is None:
            return
        simulator.now += min(plan.requeue_after, end - simulator.now)


def classes(simulator: Simulator, names: list[str], **more: str) -> None:
    several = {"fallbackAfter": "30s", **more} if len(names) > 1 else {}
    simulator.edit(hardware={"class": names, **several})


def changed(event: str, name: str) -> dict[str, Any] | None:
    """A class after the event; None if it is gone."""
    claim = {"requests": [{"name": "gpu", "deviceClass": "gpus"}]}
    versions: dict[str, dict[str, Any]] = {
        "restore": made(name),
        "uncounted": {**made(name), "status": {}},
        "close": made(name, allowedNamespaces=["other"]),
        "change": made(name, nodeSelector={"kind": "new"}),
        "claim": hardware_class(name, default=False, **{"resourceClaim": claim}),
    }
    return versions.get(event)


def happens(simulator: Simulator, event: str, what: Any) -> None:
    """One thing that people, nodes or the operator do."""
    if event in CHANGES:
        others = {name: each for name, each in simulator.hardware_classes.items() if name != what}
        new = changed(event, what)
        simulator.hardware_classes = others if new is None else {**others, what: new}
    elif event in ("full", "roomy"):
        simulator.full_classes = (simulator.full_classes - {what}) | ({what} if event == "full" else set())
    elif event == "list":
        classes(simulator, what)
    elif event == "crash":
        simulator.reconcile(crash_after=what)
    elif event == "model":
        simulator.edit(model=model(what))
    elif event == "cache":
        kept = {**simulator.service["spec"]["model"], "cache": {"size": what}}
        simulator.edit(model=kept if what else {name: kept[name] for name in kept if name != "cache"})
    else:
        acts(simulator, event)


def acts(simulator: Simulator, event: str) -> None:
    """People act on the rollout or on the whole service, nodes or volumes go, or the status is lost."""
    names = simulator.names("ControllerRevision")
    annotations = simulator.service["metadata"].setdefault("annotations", {})
    if event == "policy":
        classes(simulator, list(NAMES), **RETURNS)
    elif event in ("stop", "resume"):
        simulator.edit(stopped=event == "stop")
    elif event == "lost":
        simulator.service["status"] = {}
    elif event == "nodes":
        for pod in list(simulator.pods):
            simulator.end(pod)
    elif event == "claims":
        for claim in simulator.names("PersistentVolumeClaim"):
            del simulator.objects["PersistentVolumeClaim", claim]
    elif event == "pause" and names:
        simulator.annotate(pause=names[-1])
    elif event == "go":
        annotations.pop("tailbound.dev/pause", None)
    elif event == "rollback" and names:
        simulator.annotate(rollback_to=names[0])


@settings(max_examples=effort(20, 500))
@given(LISTS, st.lists(st.tuples(EVENTS, st.integers(0, 6)), max_size=12))
def test_room_ends_all_waits(first: list[str], script: list[tuple[tuple[str, Any], int]]) -> None:
    simulator = Simulator(service=service())
    simulator.device_classes = {"gpus": {}}
    simulator.hardware_classes = {name: made(name) for name in NAMES}
    classes(simulator, first)
    for (event, what), minutes in script:
        happens(simulator, event, what)
        live(simulator, minutes * MINUTE)
    simulator.hardware_classes = {name: made(name) for name in NAMES}
    simulator.full_classes = set()
    simulator.service["metadata"]["annotations"] = {}
    simulator.edit(stopped=False)
    classes(simulator, first, **RETURNS)
    live(simulator, timedelta(days=2))
    for _ in range(5):  # deleted pods have their time to end, for which nobody waits
        simulator.now += MINUTE
        live(simulator, MINUTE)
    assert simulator.condition("Ready") == ("True", "Serving"), simulator.message("Ready")
    assert len(simulator.pods) == 1
    assert len(first) == 1 or simulator.service["status"]["hardware"]["class"] == first[0]
