"""What the tests of decisions share: a service that serves, and plans in a few words."""

from typing import Any

from tailbound.reconcile.model import Delete, Plan, Write

from tests.support.copies import remembered
from tests.support.simulated.objects import model, service
from tests.support.simulated.simulator import Simulator

OTHER_MODEL = model("b")


@remembered
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
    """Verb and kind of every write."""
    return [described(write)[:2] for write in plan.writes]


def template_of(simulator: Simulator, name: str) -> Any:
    """The pod template of a Deployment."""
    return simulator.objects["Deployment", name]["spec"]["template"]
