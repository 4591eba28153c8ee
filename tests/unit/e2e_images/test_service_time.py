"""The sleeping model batches what waits, takes the time that it is told, and its metrics say so."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client.parser import text_string_to_metric_families

from e2e.images.faulty_runtime.server import Faults, Server, service_time
from e2e.images.faulty_runtime.service_time import Measured, ServiceTime, SleepingModel, WouldBeLateError

INFER = "/v2/models/m/infer"


@asynccontextmanager
async def running(service: ServiceTime, measured: Measured) -> AsyncIterator[SleepingModel]:
    model = SleepingModel(service, measured)
    task = asyncio.create_task(model.run())
    yield model
    task.cancel()


def values(measured: Measured) -> dict[str, float]:
    """Every series without labels."""
    families = text_string_to_metric_families(measured.render().decode())
    samples = (sample for family in families for sample in family.samples)
    return {
        sample.name.removeprefix("tailbound_runtime_"): sample.value
        for sample in samples
        if not sample.labels
    }


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, ServiceTime(0, 0, 1)),
        (
            {"SERVICE_SECONDS_BASE": "0.2", "SERVICE_SECONDS_PER_ROW": "0.05", "MAX_BATCH": "16"},
            ServiceTime(0.2, 0.05, 16),
        ),
    ],
)
def test_the_environment_says_how_fast_the_model_is(
    environment: dict[str, str], expected: ServiceTime
) -> None:
    assert service_time(environment) == expected


@pytest.mark.parametrize("wrong", [(-0.1, 0.1, 1), (0.1, -0.1, 1), (0.1, 0.1, 0)])
def test_what_no_model_can_be_is_refused(wrong: tuple[float, float, int]) -> None:
    with pytest.raises(ValueError, match="is no service time"):
        ServiceTime(*wrong)


async def test_what_would_be_late_is_refused_and_what_would_not_waits() -> None:
    measured = Measured()
    async with running(ServiceTime(0.2, 0, 2), measured) as model:
        calls = [asyncio.create_task(model.infer(30, 0.5)) for _ in range(8)]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
    refused = [isinstance(each, WouldBeLateError) for each in outcomes]
    assert refused == [False] * 4 + [True] * 4, "two runs of two requests are done within 0.5 s"


async def test_what_waits_forms_batches_and_the_sums_give_the_curve() -> None:
    measured = Measured()
    async with running(ServiceTime(0.02, 0.01, 4), measured) as model:
        await asyncio.gather(*(model.infer(60) for _ in range(7)))
    found = values(measured)
    assert (found["batches_total"], found["batch_requests_total"], found["batch_rows_total"]) == (2, 7, 7)
    assert found["batch_rows_squared_total"] == 4 * 4 + 3 * 3
    assert found["queue_depth"] == 0
    # Sleeping takes at least the time asked for.
    assert found["batch_seconds_total"] >= 0.06 + 0.05
    assert found["batch_row_seconds_total"] >= 4 * 0.06 + 3 * 0.05


async def test_a_request_that_waits_too_long_leaves_and_takes_no_place_in_a_batch() -> None:
    measured = Measured()
    async with running(ServiceTime(0.2, 0, 1), measured) as model:
        first = asyncio.create_task(model.infer(60))
        await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            await model.infer(0.001)
        await asyncio.gather(first, model.infer(60))
    assert values(measured)["batch_rows_total"] == 2


async def test_without_a_service_time_nothing_waits_and_nothing_is_measured() -> None:
    measured = Measured()
    await SleepingModel(ServiceTime(), measured).infer(0)
    assert values(measured)["batches_total"] == 0


async def test_the_server_answers_after_the_model_and_504_when_it_is_late() -> None:
    server = Server("r1", Faults(), ServiceTime(0.01, 0.01, 8), timeout_seconds=60)
    async with TestClient(TestServer(server.application())) as client:
        answers = await asyncio.gather(*(client.post(INFER, json={}) for _ in range(5)))
        assert {answer.status for answer in answers} == {200}
        server.timeout_seconds = 0
        assert (await client.post(INFER, json={})).status == 504
        text = await (await client.get("/metrics")).text()
    assert 'tailbound_runtime_requests_total{code="200"} 5.0' in text
    assert 'tailbound_runtime_requests_total{code="504"} 1.0' in text
    assert "tailbound_runtime_requests_in_flight 0.0" in text


async def test_a_server_that_is_to_tell_nothing_has_no_metrics() -> None:
    server = Server("r1", Faults(), tells_metrics=False)
    async with TestClient(TestServer(server.application())) as client:
        assert (await client.get("/metrics")).status == 404
