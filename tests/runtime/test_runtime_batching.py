"""Batching through a real process: shared runs of real models, what fails, what expires, what ends."""

import asyncio
import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from onnx import TensorProto, helper

from tests.runtime import models
from tests.runtime.process import COMMAND, NAME, Server, environment, eventually, serving

INFER = f"/v2/models/{NAME}/infer"
LONG = "30"  # seconds; a test never waits for it


def options(mode: str = "dynamic", **more: str) -> dict[str, str]:
    """The environment of a batching server; a request waits for others for as long as need be."""
    given = {"max_size": "16", "max_delay_seconds": LONG, **more}
    return {f"TAILBOUND_BATCHING_{name.upper()}": value for name, value in {"mode": mode, **given}.items()}


def tensor(name: str, rows: list[Any], datatype: str = "FP32", *width: int) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": [len(rows), *width], "data": rows}


def indices(*rows: int) -> dict[str, Any]:
    return {"inputs": [tensor("i", list(rows), "INT64")]}


def total(server: Server, name: str) -> float:
    return server.metric(f"tailbound_runtime_{name}") or 0


@pytest.mark.parametrize("mode", ["dynamic", "static"])
async def test_every_caller_gets_its_own_rows_of_shared_runs(tmp_path: Path, mode: str) -> None:
    batching = options(mode, max_delay_seconds="0.05", preferred_sizes="")
    sent = rows_sent = 0

    async def one(client: aiohttp.ClientSession, number: int) -> None:
        nonlocal sent, rows_sent
        rows = 1 + number % 3
        values = [[float(number * 100 + row * 10 + column) for column in range(4)] for row in range(rows)]
        wanted = ["sum", "product"] if number % 4 else ["product"]
        a, b = tensor("a", values, "FP32", 4), tensor("b", [[2.0] * 4] * rows, "FP32", 4)
        asked = {"id": str(number), "inputs": [a, b], "outputs": [{"name": name} for name in wanted]}
        sent += 1
        rows_sent += rows
        async with client.post(INFER, json=asked) as response:
            answer = await response.json()
        flat = [value for row in values for value in row]
        truth = {"sum": [value + 2 for value in flat], "product": [value * 2 for value in flat]}
        assert answer["id"] == str(number)
        assert {output["name"]: output["data"] for output in answer["outputs"]} == {
            name: truth[name] for name in wanted
        }
        assert {tuple(output["shape"]) for output in answer["outputs"]} == {(rows, 4)}

    with serving(models.arithmetic(tmp_path / "m.onnx"), env=batching) as server:
        connector = aiohttp.TCPConnector(limit=50)
        async with aiohttp.ClientSession(server.url, connector=connector) as client:
            await asyncio.gather(*(one(client, number) for number in range(400)))
        assert total(server, "batches_total") < sent
        assert total(server, "batch_requests_total") == sent
        assert total(server, "batch_rows_total") == rows_sent
        assert total(server, "batch_rows_squared_total") > rows_sent
        assert total(server, "batch_row_seconds_total") > total(server, "batch_seconds_total") > 0
        assert total(server, "batch_size_sum") == rows_sent
        for stage in ("receive", "decode", "queue", "batch", "execute", "encode", "send"):
            assert total(server, f'stage_seconds_count{{stage="{stage}"}}') == sent
        assert (total(server, "queue_depth"), total(server, "requests_in_flight")) == (0, 0)


def test_a_real_model_answers_the_same_in_a_shared_run(magika_server: Server) -> None:
    files = [[(7 * number + place) % 256 for place in range(2048)] for number in range(8)]
    bodies = [{"inputs": [tensor("bytes", [content], "INT32", 2048)]} for content in files]
    alone = [magika_server.infer(body).json()["outputs"][0]["data"] for body in bodies]
    with serving(models.magika_model(), env=options(max_size="8")) as server, ThreadPoolExecutor(8) as pool:
        shared = [answer.json()["outputs"][0]["data"] for answer in pool.map(server.infer, bodies)]
        assert total(server, "batches_total") == 1
    for one, other in zip(alone, shared, strict=True):
        assert one == pytest.approx(other, abs=1e-4)


def test_a_bad_request_fails_alone(tmp_path: Path) -> None:
    with (
        serving(models.lookup(tmp_path / "m.onnx"), env=options(max_size="4")) as server,
        ThreadPoolExecutor(4) as pool,
    ):
        answers = list(pool.map(server.infer, [indices(0), indices(9), indices(1), indices(2)]))
        assert [answer.status_code for answer in answers] == [200, 400, 200, 200]
        good = [answer.json()["outputs"][0]["data"] for answer in answers if answer.status_code == 200]
        assert good == [[10], [20], [30]]
        assert total(server, "batches_split_total") == 2
        assert total(server, "batches_total") == 2


def test_requests_that_fit_into_no_batch_are_refused_before_they_could_harm_one(tmp_path: Path) -> None:
    with serving(models.arithmetic(tmp_path / "m.onnx"), env=options(max_size="2")) as server:
        a, b = (tensor(name, [[1.0] * 4] * rows, "FP32", 4) for name, rows in (("a", 3), ("b", 3)))
        too_large = server.infer({"inputs": [a, b]})
        assert too_large.status_code == 400
        assert "takes at most 2 at once" in too_large.json()["error"]
        uneven = server.infer({"inputs": [tensor("a", [[1.0] * 4], "FP32", 4), b]})
        assert (uneven.status_code, "input 'b' has 3 rows" in uneven.json()["error"]) == (400, True)


def test_a_request_that_expires_while_it_waits_for_others_never_runs(tmp_path: Path) -> None:
    with serving(models.lookup(tmp_path / "m.onnx"), env=options(), request_timeout_seconds="0.5") as server:
        assert server.infer(indices(1)).status_code == 504
        assert total(server, "queue_depth") == 0
        assert total(server, "batches_total") == 0


def test_a_full_queue_of_a_batching_server_is_a_503_with_retry_after(tmp_path: Path) -> None:
    with (
        serving(
            models.lookup(tmp_path / "m.onnx"),
            queue_limit="2",
            env=options(max_size="4", max_delay_seconds="8"),
        ) as server,
        ThreadPoolExecutor() as pool,
    ):
        waiting = [pool.submit(server.infer, indices(number)) for number in range(3)]
        eventually(lambda: total(server, "queue_depth") == 3, 60)
        refused = server.infer(indices(0))
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert refused.json()["error"] == "2 requests wait for the model already"
        assert {future.result().status_code for future in waiting} == {200}


def test_a_drain_finishes_what_waits_for_others(tmp_path: Path) -> None:
    with (
        serving(models.lookup(tmp_path / "m.onnx"), env=options(max_delay_seconds="8")) as server,
        ThreadPoolExecutor() as pool,
    ):
        waiting = [pool.submit(server.infer, indices(number)) for number in range(3)]
        eventually(lambda: total(server, "queue_depth") == 3, 60)
        server.terminate()
        assert [future.result().json()["outputs"][0]["data"] for future in waiting] == [[10], [20], [30]]
        assert server.process.wait(60) == 0


def test_a_model_of_a_fixed_batch_size_serves_requests_of_any_size_in_static_batches(tmp_path: Path) -> None:
    fixed = models.identity(tmp_path / "m.onnx", TensorProto.FLOAT, (4, 2))
    with serving(fixed, env=options("static", max_size="4", max_delay_seconds="0.01")) as server:
        assert server.client.get(f"/v2/models/{NAME}").json()["inputs"][0]["shape"] == [-1, 2]
        for rows in (1, 3, 4):
            values = [[float(row), 1.0] for row in range(rows)]
            output = server.infer({"inputs": [tensor("x", values, "FP32", 2)]}).json()["outputs"][0]
            assert output["shape"] == [rows, 2]
            assert output["data"] == [value for row in values for value in row]
        assert total(server, "batch_rows_total") == 8


def fixed(path: Path) -> Path:
    return models.identity(path, TensorProto.FLOAT, (3, 2))


def mixing(path: Path) -> Path:
    """Each row of y depends on all rows of x."""
    return models.save(
        path,
        [helper.make_node("Softmax", ["x"], ["y"], axis=0)],
        [models.tensor("x", TensorProto.FLOAT, ["n", 2])],
        [models.tensor("y", TensorProto.FLOAT, ["n", 2])],
    )


def doubling(path: Path) -> Path:
    """Two rows of y for each row of x."""
    return models.save(
        path,
        [helper.make_node("Concat", ["x", "x"], ["y"], axis=0)],
        [models.tensor("x", TensorProto.FLOAT, ["n", 2])],
        [models.tensor("y", TensorProto.FLOAT, ["m", 2])],
    )


@pytest.mark.parametrize(
    ("make", "mode", "said"),
    [
        (fixed, "dynamic", "the first dimension of input 'x' of the model is fixed at 3, so that requests"),
        (fixed, "static", "is static with maxBatchSize 16: set maxBatchSize to 3"),
        (models.scaled, "dynamic", "input 'factor' of the model has no first dimension that is known"),
        (mixing, "dynamic", "output 'y' of the model for one row depends on the rows beside it"),
        (doubling, "dynamic", "output 'y' of the model has shape [16, 2] for 8 rows of input"),
        (mixing, "static", "output 'y' of the model for one row depends on the rows beside it"),
    ],
)
def test_a_model_that_cannot_be_batched_ends_the_process_and_says_why(
    tmp_path: Path, make: Any, mode: str, said: str
) -> None:
    log = tmp_path / "termination-log"
    log.touch()
    env = {**environment(make(tmp_path / "m.onnx"), termination_log=str(log)), **options(mode)}
    ended = subprocess.run(COMMAND, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 1
    termination = json.loads(log.read_text())
    assert termination["reason"] == "ModelLoadFailed"
    assert said in termination["message"]


def test_a_model_that_cannot_be_batched_is_served_without_batching(tmp_path: Path) -> None:
    with serving(mixing(tmp_path / "m.onnx")) as server:
        output = server.infer({"inputs": [tensor("x", [[1.0, 1.0]] * 2, "FP32", 2)]}).json()["outputs"][0]
        assert output["data"] == [0.5] * 4
        assert total(server, "batch_rows_total") == 2
