"""The pump runs kopf, which watches the kinds that services share and puts every event into a store.

kopf is used for nothing else: it logs in, watches, says that it has started, and stops when it is asked to.

| kind | who follows it | why |
|---|---|---|
| `stores.SHARED`: runtimes, HardwareClasses, HostGrants | kopf | a cluster has a few of them |
| `stores.OF_EACH_SERVICE`: InferenceServices, what they own | `informers` | as many as the fleet is large |
| DeviceClasses | `informers` | not every API server has the kind, and kopf would wait for its CRD |

For each object kopf keeps a task, a queue and a memory, parses its managedFields and copies it for each
event, and it does not say when its first list is complete, before which no service may be decided on and no
child be taken for missing. With 5,000 InferenceServices that is hundreds of MB and most of the CPU time of a
start. `resync` lists the shared kinds for what kopf does not say.

No create, update, timer, daemon or index handlers: they are edge-triggered, and write into what they watch.
This is the only module that imports kopf.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from typing import Any, Final, cast

import kopf
from kubernetes.aio.client.configuration import Configuration

from tailbound.controller.stores import SHARED, Stores
from tailbound.kube.resources import Resource

SERVER_TIMEOUT_SECONDS = 300
CLIENT_TIMEOUT_SECONDS = 310
CONNECT_TIMEOUT_SECONDS = 10
PAGE_SIZE = 500
# No one is notified, but kopf would look its user up, and a container's has no name.
_IDENTITY: Final = "tailbound"


class _NotKopfs(Collection[Any]):
    """Tells kopf that no task of this event loop is its own, besides those that it holds.

    When it stops it would otherwise cancel every task that is younger than itself, the workers among them.
    """

    def __contains__(self, _: object) -> bool:
        return True

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __len__(self) -> int:
        return 0


class Pump:
    """Watches what services share until `stop` is set. A watch that dies ends `run` with its error."""

    def __init__(
        self,
        stores: Stores,
        connect: Callable[[], Awaitable[Configuration]],
        namespaces: Sequence[str],
        heard: Callable[[Resource, int], None],
        started: Callable[[], None],
    ) -> None:
        self._stores = stores
        self._connect = connect
        self._namespaces = tuple(namespaces)
        self._heard = heard
        self._started = started

    async def run(self, stop: asyncio.Event) -> None:
        """Run kopf in this event loop."""
        logging.getLogger("kopf").setLevel(logging.WARNING)
        tasks = await kopf.spawn_tasks(
            registry=self._registry(),
            settings=_settings(),
            standalone=True,
            identity=cast(Any, _IDENTITY),
            clusterwide=not self._namespaces,
            namespaces=self._namespaces,
            stop_flag=stop,
        )
        try:
            await kopf.run_tasks(tasks, ignored=_NotKopfs())
        finally:
            stop.set()  # one task of kopf waits for nothing else

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        for resource in SHARED:
            group, _, version = resource.api_version.rpartition("/")
            kopf.on.event(group, version, resource.plural, id=resource.plural, registry=registry)(
                self._handler(resource)
            )
        kopf.on.login(id="login", registry=registry)(self._login)
        kopf.on.startup(id="startup", registry=registry)(self._startup)
        return registry

    def _handler(self, resource: Resource) -> Callable[..., Awaitable[None]]:
        store = self._stores.of[resource]

        async def on_event(event: Any, **_kwargs: Any) -> None:
            self._heard(resource, 0)
            obj = {**event["object"], "apiVersion": resource.api_version, "kind": resource.kind}
            if event["type"] == "DELETED":
                store.remove(obj)
            else:
                store.upsert(obj)

        return on_event

    async def _startup(self, **_kwargs: Any) -> None:
        # kopf has put its own signal handlers in place by now: the process wants to stop in its own order.
        self._started()

    async def _login(self, **_kwargs: Any) -> kopf.ConnectionInfo:
        """Give kopf the connection of the transport; kopf asks again whenever the API server answers 401."""
        configuration = await self._connect()
        token = await configuration.get_api_key_with_prefix("BearerToken")
        scheme, _, credentials = (token or "").partition(" ")
        return kopf.ConnectionInfo(
            server=configuration.host,
            ca_path=configuration.ssl_ca_cert,
            insecure=not configuration.verify_ssl,
            certificate_path=configuration.cert_file,
            private_key_path=configuration.key_file,
            scheme=scheme or None,
            token=credentials or None,
        )


def _settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.watching.server_timeout = SERVER_TIMEOUT_SECONDS
    settings.watching.client_timeout = CLIENT_TIMEOUT_SECONDS
    settings.watching.connect_timeout = CONNECT_TIMEOUT_SECONDS
    settings.watching.chunk_size = PAGE_SIZE
    settings.networking.connect_timeout = CONNECT_TIMEOUT_SECONDS
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.peering.standalone = True
    # The stop flag ends kopf; killing the process is not its business.
    settings.process.ultimate_exiting_timeout = None
    return settings
