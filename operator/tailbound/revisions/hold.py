"""What drain.mode hold adds to a pod template: a preStop hook, and a sidecar that sees when the server idles.

The kubelet waits for the answer to the hook before it sends SIGTERM to the server. The sidecar is an init
container that is always restarted, so that it stops after the server.
"""

from typing import Any, Final

from tailbound.api.quantities import Duration
from tailbound.api.runtime_contract import GRPC_PORT_NAME, HOLD_CONTAINER, HOLD_PATH, HTTP_PORT_NAME
from tailbound.api.servingruntime import ServerContainer

_FIRST_PORT: Final = 9901
_RESOURCES: Final = {"cpu": "20m", "memory": "64Mi", "ephemeral-storage": "64Mi"}


def pre_stop(server: ServerContainer) -> dict[str, Any]:
    """The lifecycle of the server container."""
    return {"preStop": {"httpGet": {"path": HOLD_PATH, "port": _port(server), "scheme": "HTTP"}}}


def hold_container(
    server: ServerContainer, least: Duration, longest: Duration, common: dict[str, Any]
) -> dict[str, Any]:
    """The sidecar. `common` are the fields that it shares with the other container of Tailbound's image."""
    watched = [port.container_port for port in server.ports if port.name in (HTTP_PORT_NAME, GRPC_PORT_NAME)]
    ports = ["--port", str(_port(server)), "--watch", *map(str, watched)]
    times = ["--least", f"{least.seconds:f}", "--longest", f"{longest.seconds:f}"]
    return {
        **common,
        "name": HOLD_CONTAINER,
        "restartPolicy": "Always",
        "args": ["hold", *ports, *times],
        "resources": {"requests": dict(_RESOURCES), "limits": dict(_RESOURCES)},
    }


def _port(server: ServerContainer) -> int:
    """The first port from `_FIRST_PORT` on that the server does not use."""
    used = {port.container_port for port in server.ports}
    return next(port for port in range(_FIRST_PORT, 65536) if port not in used)
