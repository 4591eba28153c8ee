"""Deciding costs little more than the objects that it looks at: a fleet may change as fast as they arrive."""

import json
import time
from collections.abc import Callable

from tailbound.reconcile.decide import decide, draft, read, wanted_rendering
from tailbound.reconcile.model import Plan
from tailbound.revisions.template import expand

from tests.support.simulated.objects import spec
from tests.support.simulated.simulator import Simulator

# Against reading and writing the same objects as JSON, on the same machine. 3.0 to 3.8 was measured.
MOST_TIMES_JSON = 5.0
ROUNDS = 100
MOST_SERIES = 10


def cheapest_ratio(work: Callable[[], object], yardstick: Callable[[], object]) -> float:
    """The CPU time of the cheapest round of `work` over that of `yardstick`.

    Neighbours on a shared machine take caches away, and more from the larger work: so a series of rounds, in
    which the two take turns, is repeated while its ratio is too large.
    """
    ratios = (_cheapest(work, yardstick) for _ in range(MOST_SERIES))
    least = next(ratios)
    while least >= MOST_TIMES_JSON and (another := next(ratios, None)) is not None:
        least = min(least, another)
    return least


def _cheapest(*works: Callable[[], object]) -> float:
    costs: list[list[float]] = [[] for _ in works]
    for _ in range(ROUNDS):
        for each, cost in zip(works, costs, strict=True):
            began = time.thread_time()
            each()
            cost.append(time.thread_time() - began)
    least, least_of_yardstick = (min(cost) for cost in costs)
    return least / least_of_yardstick


def test_deciding_on_an_idle_service_with_full_history_is_cheap() -> None:
    simulator = Simulator()
    simulator.edit(scaling={"min": 3})
    for number in range(12):
        simulator.edit(model=spec()["model"] | {"sha256": f"{number:064x}"})
        simulator.settle()
    observation = simulator.observation()
    request = wanted_rendering(read(observation))
    assert request is not None
    drafted = draft(read(observation), expand(request))

    def idle_poll() -> Plan:
        return decide(read(observation), drafted, simulator.now)

    assert idle_poll() == Plan()
    objects = [
        observation.service,
        *observation.children.revisions,
        *observation.children.deployments,
        *observation.children.services,
        *observation.children.pods,
        *observation.children.endpoint_slices,
    ]
    text = json.dumps(objects)
    assert cheapest_ratio(idle_poll, lambda: json.dumps(json.loads(text))) < MOST_TIMES_JSON
