"""What a gateway pod says of its routes."""

import json
from typing import Final

from e2e.scenarios.library.api import Object
from e2e.scenarios.library.scene import OPERATOR, Scene
from e2e.scenarios.library.waiting import SYSTEM, Unmet

PORT: Final = 8080
OBSERVED_PORT: Final = 8081


def observed(scene: Scene, pod: Object, service: str) -> Object | Unmet:
    """What a gateway pod says about a service, read as the operator reads it."""
    token = scene.world.kubectl.run(
        "create", "token", OPERATOR, "-n", SYSTEM, "--audience", "tailbound-gateway"
    ).strip()
    answer = scene.world.client.request(
        f"https://{pod['status']['podIP']}:{OBSERVED_PORT}/observed",
        headers={"Authorization": f"Bearer {token}"},
    )
    if answer.status != 200:
        return Unmet(f"HTTP {answer.status}: {answer.body}")
    found: Object | None = answer.json()["services"].get(f"{scene.namespace}/{service}")
    return found if found is not None else Unmet(answer.body)


def rejected(scene: Scene, pod: Object, service: str) -> Object | Unmet:
    """The route of a service that a gateway pod refuses to apply, and why."""
    seen = observed(scene, pod, service)
    if isinstance(seen, Unmet):
        return seen
    return seen["rejected"] if seen.get("rejected") else Unmet(json.dumps(seen))
