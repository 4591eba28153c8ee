"""What is kept for metrics: equal to a look at every service, after any sequence of changes."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from tailbound.controller.service_gauges import ConditionCounts, ServiceCosts
from tailbound.kube.store import ObjectStore
from tailbound.objects.fields import Object

_CONDITIONS = st.dictionaries(
    st.sampled_from(["Ready", "Stalled", "Reconciling", "Another"]), st.sampled_from(["True", "False"])
)
_CHANGES = st.lists(st.tuples(st.sampled_from("abc"), st.none() | _CONDITIONS), max_size=30)


def _service(name: str, version: int, conditions: dict[str, str]) -> Object:
    return {
        "metadata": {"namespace": "risk", "name": name, "uid": name, "resourceVersion": str(version)},
        "status": {"conditions": [{"type": kind, "status": status} for kind, status in conditions.items()]},
    }


@given(_CHANGES)
def test_counts_are_those_of_the_services_that_are_there(
    changes: list[tuple[str, dict[str, str] | None]],
) -> None:
    store, there = ObjectStore(), dict[str, dict[str, str]]()
    counts = ConditionCounts(store)
    for version, (name, conditions) in enumerate(changes, start=1):
        if conditions is None:
            store.gone("risk", name, name)
            there.pop(name, None)
        elif store.upsert(_service(name, version, conditions)):
            there[name] = conditions
    expected = Counter(pair for each in there.values() for pair in each.items() if pair[0] != "Another")
    assert counts.by_status() == expected


COSTS = ["", "1.25", "0", "much", "nan", "inf", "-1"]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(COSTS)), max_size=20))
def test_costs_are_those_of_the_services_whose_cost_is_known(changes: list[tuple[str, str]]) -> None:
    store, leads = ObjectStore(), [True]
    costs = ServiceCosts(store, lambda: leads[0])
    for version, (name, cost) in enumerate(changes, start=1):
        status = {"hardware": {"costPerHour": cost}} if cost else {}
        store.upsert({**_service(name, version, {}), "status": status})
    for name in "a":
        store.gone("risk", name, name)
    expected = {("risk", name): float(cost) for name, cost in dict(changes).items() if cost in ("1.25", "0")}
    expected.pop(("risk", "a"), None)
    assert costs.by_service() == expected
    leads[0] = False
    assert costs.by_service() == {}
