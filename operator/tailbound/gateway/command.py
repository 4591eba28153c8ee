"""`tailbound gateway bootstrap | run | drain`.

    bootstrap  write Envoy's configuration to the run directory, and end (init container)
    run        serve Envoy its configuration and the operator what is applied, until SIGTERM (sidecar)
    drain      wait until this pod may stop without losing a request (preStop of the Envoy container)

Exit status: 0 done, 1 the environment is wrong or the API server unusable, 2 usage.
"""

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence

from tailbound.environment import SettingError, process_variables
from tailbound.gateway.bootstrap import bootstrap, wildcard_address, write_bootstrap
from tailbound.gateway.settings import GatewaySettings, read_settings

USAGE = "usage: tailbound gateway {bootstrap|run|drain}"

_EXIT_MARGIN_SECONDS = 5
"""What Envoy and then the sidecar need to end after the drain, before the kubelet kills them."""


def _bootstrap(settings: GatewaySettings) -> int:
    write_bootstrap(
        settings.run,
        bootstrap(
            settings.run,
            settings.pod_name,
            wildcard_address(),
            settings.max_request_bytes,
            settings.memory_bytes,
            settings.cluster_domain,
        ),
    )
    return 0


def _run(settings: GatewaySettings) -> int:
    from tailbound.telemetry.logs import configure

    configure()
    return asyncio.run(_serve(settings, process_variables()))


def _drain(settings: GatewaySettings) -> int:
    from tailbound.gateway.drain import drain
    from tailbound.gateway.leaving import DrainTimes

    times = DrainTimes(longest=settings.termination_grace_seconds - _EXIT_MARGIN_SECONDS)
    sys.stderr.write(asyncio.run(drain(settings.run, times)) + "\n")
    return 0


async def _serve(settings: GatewaySettings, environ: Mapping[str, str]) -> int:
    from tailbound.gateway.run import run_gateway
    from tailbound.kube.aio import AioCluster
    from tailbound.kube.connection import load_configuration
    from tailbound.kube.errors import Terminal

    try:
        cluster = AioCluster(await load_configuration(environ))
    except Terminal as error:
        sys.stderr.write(f"{error}\n")
        return 1
    try:
        await _until_terminated(run_gateway(settings, cluster))
    finally:
        await cluster.close()
    return 0


async def _until_terminated(work: Awaitable[None]) -> None:
    """Await `work`; SIGTERM and SIGINT cancel it, and are no failure."""
    task = asyncio.ensure_future(work)
    stopping = asyncio.Event()

    def stop() -> None:
        stopping.set()
        task.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    try:
        await task
    except asyncio.CancelledError:
        if not stopping.is_set():
            raise


_COMMANDS: Mapping[str, Callable[[GatewaySettings], int]] = {
    "bootstrap": _bootstrap,
    "run": _run,
    "drain": _drain,
}


def main(arguments: Sequence[str]) -> int:
    """Run one of the three; the result is the exit status."""
    command = _COMMANDS.get(arguments[0]) if len(arguments) == 1 else None
    if command is None:
        sys.stderr.write(USAGE + "\n")
        return 2
    try:
        return command(read_settings(process_variables()))
    except SettingError as error:
        sys.stderr.write(f"{error}\n")
        return 1
