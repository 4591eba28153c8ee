"""`tailbound operator` as the process that it is in a pod: environment, probes, signals, exit statuses."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest
from tailbound.kube.resources import DEPLOYMENTS, LEASES

from e2e.cluster.ports import free_port
from tests.integration.controller.environment import LONGEST_SECONDS, Environment

ROOT = Path(__file__).parents[3]
# Two processes on one machine cannot have the same ports: only these are not the ones of a pod.
LAUNCH = """
import dataclasses, sys
from tailbound.controller import command
from tailbound.main import main
read = command.read_settings
health, metrics = map(int, sys.argv[2:4])
command.read_settings = lambda env: dataclasses.replace(read(env), health_port=health, metrics_port=metrics)
sys.exit(main(sys.argv[1:2]))
"""


def variables(environment: Environment) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT / "operator"),
        "KUBECONFIG": str(environment.control_plane.kubeconfig),
        "POD_NAME": "operator-0",
        "POD_NAMESPACE": environment.system,
        "TAILBOUND_WATCH_NAMESPACES": environment.namespace,
        "TAILBOUND_FETCH_IMAGE": "tailbound:test",
    }


@asynccontextmanager
async def process(values: dict[str, str], health: int, metrics: int) -> AsyncIterator[Process]:
    """The command, with its two ports moved to where they are free."""
    started = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        LAUNCH,
        *("operator", str(health), str(metrics)),
        env=values,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield started
    finally:
        with suppress(ProcessLookupError):
            started.kill()
        await started.communicate()


async def answer(port: int, path: str) -> tuple[int, str]:
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{port}{path}") as response,
        ):
            return response.status, await response.text()
    except aiohttp.ClientError:
        return 0, ""


async def test_probes_metrics_work_and_a_clean_end_on_sigterm(environment: Environment) -> None:
    health, metrics = free_port(), free_port()
    async with process(variables(environment), health, metrics) as operator:

        async def ready() -> bool:
            return (await answer(health, "/readyz"))[0] == 200

        await environment.until("readiness", ready, 40)
        assert await answer(health, "/healthz") == (200, "ok\n")
        await environment.create("churn")

        async def deployed() -> bool:
            return bool(await environment.children(DEPLOYMENTS, "churn"))

        await environment.until("a Deployment", deployed)
        status, text = await answer(metrics, "/metrics")
        assert status == 200
        assert "tailbound_operator_leader 1.0" in text
        assert 'tailbound_operator_writes_total{kind="Deployment",outcome="ok",verb="create"} 1.0' in text
        operator.send_signal(signal.SIGTERM)
        async with asyncio.timeout(LONGEST_SECONDS):
            _, log = await operator.communicate()
        assert operator.returncode == 0, log.decode()
    lease = await environment.cluster.get(LEASES, environment.system, "tailbound-operator")
    assert lease is not None
    assert not lease["spec"].get("holderIdentity")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"TAILBOUND_FETCH_IMAGE": ""}, "TAILBOUND_FETCH_IMAGE is not set"),
        ({"TAILBOUND_IMAGE_PULL_POLICY": "Sometimes"}, "TAILBOUND_IMAGE_PULL_POLICY: 'Sometimes'"),
    ],
)
async def test_wrong_settings_end_the_process_with_status_2_and_a_sentence(
    environment: Environment, change: dict[str, str], words: str
) -> None:
    async with process({**variables(environment), **change}, free_port(), free_port()) as operator:
        async with asyncio.timeout(LONGEST_SECONDS):
            _, log = await operator.communicate()
        assert operator.returncode == 2
        assert words in log.decode()
        assert "Traceback" not in log.decode()


async def test_kubeconfig_that_is_not_there_ends_the_process_with_status_1(environment: Environment) -> None:
    values = {**variables(environment), "KUBECONFIG": "/nowhere/kubeconfig"}
    async with process(values, free_port(), free_port()) as operator:
        async with asyncio.timeout(LONGEST_SECONDS):
            _, log = await operator.communicate()
        assert operator.returncode == 1
        assert "KUBECONFIG=/nowhere/kubeconfig" in log.decode()
