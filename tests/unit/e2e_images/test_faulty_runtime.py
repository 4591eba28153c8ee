"""The faulty model server does what its environment, or somebody later, tells it."""

import pytest
from aiohttp.test_utils import TestClient, TestServer

from e2e.images.faulty_runtime.server import Faults, Server


@pytest.mark.parametrize(
    ("chance", "outcome"),
    [(0.0, "failed"), (0.09, "failed"), (0.15, "hung"), (0.25, "slow"), (0.31, "good"), (0.99, "good")],
)
def test_each_fault_gets_its_part_of_the_requests(chance: float, outcome: str) -> None:
    faults = Faults(error_fraction=0.1, hang_fraction=0.1, slow_fraction=0.1)
    assert faults.choose(chance) == outcome


def test_environment_sets_faults_and_what_else_is_in_it_sets_none() -> None:
    faults = Faults().with_values({"SLOW_FRACTION": "0.5", "DELAY_MS": "20", "PATH": "/bin"})
    assert faults == Faults(slow_fraction=0.5, delay_ms=20)


def test_parts_beyond_the_whole_are_refused() -> None:
    with pytest.raises(ValueError, match=r"sum up to 1\.2"):
        Faults(error_fraction=0.6, slow_fraction=0.6)


async def test_faults_may_change_and_everything_is_counted() -> None:
    server = Server("r1", Faults())
    async with TestClient(TestServer(server.application())) as client:
        good = await client.post("/v2/models/m/infer", json={})
        assert (good.status, await good.json()) == (200, {"revision": "r1"})
        await client.post("/_faults", json={"ERROR_FRACTION": 1})
        bad = await client.post("/v2/models/m/infer", json={})
        assert (bad.status, (await bad.json())["revision"]) == (500, "r1")
        counts = await (await client.get("/_counts")).json()
        assert (counts["good"], counts["failed"]) == (1, 1)
        assert counts["first_bad"] is not None


async def test_a_protocol_of_its_own_has_the_same_faults_and_states_its_inputs() -> None:
    server = Server("r1", Faults(error_fraction=1), inputs=2)
    async with TestClient(TestServer(server.application())) as client:
        assert (await client.post("/models/m/answer", json={})).status == 500
        schema = await (await client.get("/models/m/schema")).json()
        assert (await client.get("/alive")).status == 200
    assert [each["name"] for each in schema["inputs"]] == ["x0", "x1"]
    assert server.counts == {"failed": 1}


async def test_readiness_fails_while_it_is_told_so_and_while_it_drains() -> None:
    server = Server("r1", Faults(never_ready=1))
    async with TestClient(TestServer(server.application())) as client:
        assert (await client.get("/v2/health/ready")).status == 503
        server.faults = Faults()
        assert (await client.get("/v2/health/ready")).status == 200
        server.draining = True
        assert (await client.get("/v2/health/ready")).status == 503
        assert (await client.get("/v2/health/live")).status == 200
