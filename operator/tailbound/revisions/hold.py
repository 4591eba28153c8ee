"""What drain.mode hold adds to a pod template: a preStop hook, and a sidecar that sees when the server idles.

The kubelet waits for the answer to the hook before it sends SIGTERM to the server. The sidecar is an init
container that is always restarted, so that it stops after the server.
"""

from collections.abc import Iterable
from typing import Any, Final

from tailbound.api.init_container import InitContainer
from tailbound.api.quantities import Duration
from tailbound.api.runtime_contract import GRPC_PORT_NAME, HOLD_CONTAINER, HOLD_PATH, HTTP_PORT_NAME
from tailbound.api.servingruntime import ServerContainer

# None at which well-known sidecars listen, such as Envoy's administration at 9901.
_FIRST_PORT: Final = 15901
_RESOURCES: Final = {"cpu": "20m", "memory": "64Mi", "ephemeral-storage": "64Mi"}


def hold_port(server: ServerContainer, sidecars: Iterable[InitContainer]) -> int:
    """The first port from `_FIRST_PORT` on that neither the server nor a probe of a sidecar names."""
    asked = frozenset[int | str]().union(*(each.probed_ports for each in sidecars))
    used = {*(port.container_port for port in server.ports), *asked}
    return next(port for port in range(_FIRST_PORT, 65536) if port not in used)


def pre_stop(port: int) -> dict[str, Any]:
    """The lifecycle of the server container. `port` is that of the sidecar."""
    return {"preStop": {"httpGet": {"path": HOLD_PATH, "port": port, "scheme": "HTTP"}}}


def hold_container(
    server: ServerContainer, port: int, least: Duration, longest: Duration, common: dict[str, Any]
) -> dict[str, Any]:
    """The sidecar. `common` are the fields that it shares with the other container of Tailbound's image."""
    watched = [port.container_port for port in server.ports if port.name in (HTTP_PORT_NAME, GRPC_PORT_NAME)]
    ports = ["--port", str(port), "--watch", *map(str, watched)]
    times = ["--least", f"{least.seconds:f}", "--longest", f"{longest.seconds:f}"]
    return {
        **common,
        "name": HOLD_CONTAINER,
        "restartPolicy": "Always",
        "args": ["hold", *ports, *times],
        "resources": {"requests": dict(_RESOURCES), "limits": dict(_RESOURCES)},
    }
