"""What the tests of decisions share: a service that serves, and plans in a few words."""

from typing import Any

from tailbound.reconcile.model import Delete, Plan, Write

from tests.unit.reconcile.simulator import (
    Simulator,
    service,
    spec,
)

OTHER_MODEL = spec()["model"] | {"sha256": "b" * 64}
THIRD_MODEL = spec()["model"] | {"sha256": "c" * 64}


def settled(**fields: Any) -> Simulator:
    """A service that serves."""
    simulator = Simulator(service=service(**fields))
    simulator.settle()
    return simulator


def described(write: Write) -> tuple[str, str, str]:
    """Verb, kind and name of a write."""
    if isinstance(write, Delete):
        return "Delete", write.kind, write.name
    return type(write).__name__, write.body["kind"], write.body["metadata"]["name"]


def verbs(plan: Plan) -> list[tuple[str, str]]:
    return [described(write)[:2] for write in plan.writes]


def template_of(simulator: Simulator, name: str) -> Any:
    return simulator.objects["Deployment", name]["spec"]["template"]
