"""The life of the process: loading, deadlines, queue, many callers, drain."""

import asyncio
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import pytest
from onnx import TensorProto, helper

from e2e.scenarios.library.models import exhausted
from tests.runtime import models
from tests.runtime.process import COMMAND, NAME, Server, environment, eventually, serving, starting

INFER = f"/v2/models/{NAME}/infer"


def rounds(count: int) -> dict[str, Any]:
    return {
        "inputs": [{"name": "rounds", "datatype": "INT64", "shape": [1], "data": [count]}],
        "outputs": [{"name": "done"}],
    }


SLOW = rounds(10**7)  # minutes
QUICK = rounds(1)


def test_a_port_in_use_is_named(tmp_path: Path, arithmetic: Server) -> None:
    port = arithmetic.url.rpartition(":")[2]
    ended = subprocess.run(
        COMMAND,
        env=environment(Path("/m.onnx"), http_port=port),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ended.returncode == 1
    assert f"TAILBOUND_HTTP_PORT is {port}, where this process cannot listen" in ended.stdout


@contextmanager
def loading(tmp_path: Path) -> Iterator[Server]:
    """A server whose model file is a pipe that nobody has written yet: it loads for as long as we like."""
    pipe = tmp_path / "pipe.onnx"
    os.mkfifo(pipe)
    with serving(pipe, wait_for="listening") as server:
        yield server


def test_while_the_model_loads_the_server_lives_but_is_not_ready(tmp_path: Path) -> None:
    with loading(tmp_path) as server:
        assert server.client.get("/v2/health/live").status_code == 200
        for path in ("/v2/health/ready", f"/v2/models/{NAME}/ready"):
            response = server.client.get(path)
            assert (response.status_code, response.json()["ready"]) == (503, False)
        for response in (server.infer(QUICK), server.client.get(f"/v2/models/{NAME}")):
            assert (response.status_code, response.headers["retry-after"]) == (503, "1")
            assert "still loading" in response.json()["error"]
        assert server.metric("tailbound_runtime_model_load_seconds") is None
        # Leaving the block also shows that SIGTERM ends a server that is still loading.


def test_the_log_says_where_the_model_runs(arithmetic: Server) -> None:
    loaded = next(line for line in arithmetic.lines if line["event"] == "model loaded")
    assert loaded["provider"] == "CPUExecutionProvider"
    assert {"time", "level", "model", "revision"} <= set(loaded)


def test_a_model_that_cannot_warm_up_on_one_row_is_served_all_the_same(tmp_path: Path) -> None:
    """It splits off two rows, which one row does not have; real requests have more."""
    split = helper.make_node("Split", ["x", "sizes"], ["first", "rest"], axis=0)
    sizes = helper.make_node(
        "Constant", [], ["sizes"], value=helper.make_tensor("s", TensorProto.INT64, [2], [2, 1])
    )
    model = models.save(
        tmp_path / "m.onnx",
        [sizes, split],
        [models.tensor("x", TensorProto.FLOAT, ["n"])],
        [models.tensor("rest", TensorProto.FLOAT, ["m"])],
    )
    with serving(model) as server:
        assert any(line["event"].startswith("warm-up failed") for line in server.lines)
        tensor = {"name": "x", "datatype": "FP32", "shape": [3], "data": [1, 2, 3]}
        assert server.infer({"inputs": [tensor]}).json()["outputs"][0]["data"] == [3]


def test_onnx_runtime_sends_and_stores_no_usage_data(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    paths = {"HOME": str(home), "XDG_CACHE_HOME": str(home / "cache"), "TMPDIR": str(home)}
    with serving(models.arithmetic(tmp_path / "m.onnx"), env=paths):
        pass
    assert list(home.rglob("*")) == []


def test_a_model_that_fails_on_everything_ends_the_process_and_says_why(tmp_path: Path) -> None:
    log, model = tmp_path / "termination-log", tmp_path / "m.onnx"
    log.touch()
    model.write_bytes(exhausted("m").content)
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}
    with starting(model, termination_log=str(log), drain_seconds="600") as server:
        server.wait_for("ready")
        response = server.infer({"inputs": [tensor]})
        assert response.status_code == 500
        assert response.json()["error"] == "the model failed: the server's log has the details"
        assert server.process.wait(30) == 1
        told = server.wait_for("model broken")
    termination = json.loads(log.read_text())
    assert termination["reason"] == "ModelBroken"
    assert told["error"] == termination["message"]
    assert "fails even on zeros now" in termination["message"]
    assert "while running Reshape node" in termination["message"]


def test_what_fails_while_the_model_takes_other_tensors_is_the_clients_fault(tmp_path: Path) -> None:
    model = models.reshaping(tmp_path / "m.onnx")

    def ask(rows: int) -> int:
        x = {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}
        wanted = {"name": "wanted", "datatype": "INT64", "shape": [2], "data": [rows, 2]}
        return server.infer({"inputs": [x, wanted]}).status_code

    with serving(model) as server:
        assert [ask(rows) for rows in (1, 7, 7, 7, 1)] == [200, 400, 400, 400, 200]


# --- deadlines and queue


def test_a_request_is_answered_504_at_its_deadline_and_the_model_is_free_again(slow_model: Path) -> None:
    with serving(slow_model, request_timeout_seconds="0.7") as server:
        started = time.monotonic()
        response = server.infer(SLOW)
        elapsed = time.monotonic() - started
        assert response.status_code == 504
        assert response.json()["error"] == "no answer within 0.7 s, the time-out of this service"
        assert 0.65 <= elapsed < 2
        own = server.infer({**SLOW, "parameters": {"timeout": 100_000}})
        assert own.json()["error"] == "no answer within 0.1 s, the time-out of this request"
        longer = server.infer({**SLOW, "parameters": {"timeout": 90_000_000}})
        assert longer.json()["error"] == "no answer within 0.7 s, the time-out of this service"
        # The run was stopped: the next one does not wait for minutes.
        assert eventually(lambda: server.infer(QUICK).status_code == 200)
        assert server.metric("tailbound_runtime_queue_depth") == 0


def test_liveness_is_answered_while_the_model_computes(slow_model: Path) -> None:
    with serving(slow_model, request_timeout_seconds="1.5") as server, ThreadPoolExecutor() as pool:
        running = pool.submit(server.infer, SLOW)
        eventually(lambda: server.metric("tailbound_runtime_requests_in_flight") == 1)
        while not running.done():
            assert server.client.get("/v2/health/live", timeout=1).status_code == 200
        assert running.result().status_code == 504


def test_a_full_queue_is_a_503_with_retry_after_at_once(slow_model: Path) -> None:
    with (
        serving(slow_model, request_timeout_seconds="2", queue_limit="2") as server,
        ThreadPoolExecutor() as pool,
    ):
        running = [pool.submit(server.infer, SLOW) for _ in range(3)]
        # Two may wait before the model has taken the first: all three have to be there.
        in_flight, waiting = "tailbound_runtime_requests_in_flight", "tailbound_runtime_queue_depth"
        eventually(lambda: (server.metric(in_flight), server.metric(waiting)) == (3, 2))
        started = time.monotonic()
        response = server.infer(QUICK)
        assert time.monotonic() - started < 1
        assert (response.status_code, response.headers["retry-after"]) == (503, "1")
        assert response.json()["error"] == "2 requests wait for the model already"
        assert [future.result().status_code for future in running] == [504] * 3
        assert eventually(lambda: server.infer(QUICK).status_code == 200)
        assert server.metric('tailbound_runtime_requests_total{code="503"}') == 1


def test_what_would_be_late_is_a_503_that_says_so_and_is_counted(slow_model: Path) -> None:
    with serving(slow_model, request_timeout_seconds="2") as server, ThreadPoolExecutor() as pool:
        bound = {"x-tailbound-latency-bound-ms": "500"}
        for _ in range(5):  # the server learns how long a run takes
            assert server.infer(QUICK, headers=bound).status_code == 200
        running = pool.submit(server.infer, SLOW, headers=bound)
        eventually(lambda: server.metric("tailbound_runtime_requests_in_flight") == 1)
        response = pool.submit(server.infer, QUICK, headers=bound).result()
        assert response.status_code == 503
        assert not running.done(), "the run before it goes on; it is refused when its own time is over"
        assert (response.headers["retry-after"], response.headers["x-tailbound-shed"]) == ("1", "true")
        assert "overloaded" in response.json()["error"]
        assert running.result().status_code == 504
        assert server.metric("tailbound_runtime_requests_shed_total") == 1
        refused = server.infer(QUICK, headers={"x-tailbound-latency-bound-ms": "-1"})
        assert (refused.status_code, "whole milliseconds" in refused.json()["error"]) == (400, True)


def test_a_body_that_does_not_arrive_is_a_408(slow_model: Path) -> None:
    with serving(slow_model, request_timeout_seconds="0.5") as server:

        def stalling() -> Iterator[bytes]:
            yield b'{"inputs"'
            time.sleep(1.5)
            yield b": []}"

        response = server.client.post(INFER, content=stalling())
        assert response.status_code == 408
        assert "did not arrive within 0.5 s" in response.json()["error"]


def test_a_client_that_hangs_up_leaves_nothing_behind(slow_model: Path) -> None:
    """Its run is stopped, and its place in the queue is free, long before the deadline."""
    with serving(slow_model, request_timeout_seconds="600") as server:
        for _ in range(5):
            with pytest.raises(httpx.ReadTimeout):
                server.infer(SLOW, timeout=0.05)
        assert eventually(lambda: server.metric("tailbound_runtime_requests_in_flight") == 0, 60)
        assert server.metric("tailbound_runtime_queue_depth") == 0
        assert server.infer(QUICK).status_code == 200
        assert server.metric('tailbound_runtime_requests_total{code="200"}') == 1


# --- many callers


async def test_every_caller_gets_exactly_its_own_rows(arithmetic: Server) -> None:
    """Good and bad requests of many sizes at once: answers meet their requests, failures stay alone."""

    async def one(client: aiohttp.ClientSession, number: int) -> None:
        rows = number % 5
        data = [float(number * 100 + i) for i in range(rows * 4)]
        a = {"name": "a", "datatype": "FP32", "shape": [rows, 4], "data": data}
        b = {**a, "name": "b", "data": [2.0] * len(data)}
        wrong = number % 7 == 3
        if wrong:
            b["shape"] = [rows + 1, 4]
        async with client.post(INFER, json={"id": str(number), "inputs": [a, b]}) as response:
            body = await response.json()
        if wrong:
            assert response.status == 400
            return
        assert body["id"] == str(number)
        assert body["outputs"][0]["data"] == [x + 2 for x in data]
        assert body["outputs"][1]["data"] == [x * 2 for x in data]

    connector = aiohttp.TCPConnector(limit=50)
    async with aiohttp.ClientSession(arithmetic.url, connector=connector) as client:
        await asyncio.gather(*(one(client, number) for number in range(600)))
    assert arithmetic.metric("tailbound_runtime_requests_in_flight") == 0


# --- drain


class Traffic:
    """Continuous requests over kept and over new connections, until told to stop. Every failure is kept."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._stop = threading.Event()
        self.answers: list[tuple[float, int, str | None]] = []
        self.failures: list[str] = []
        self._threads = [
            threading.Thread(target=self._run, args=(kept,)) for kept in (True, True, False, False)
        ]

    def __enter__(self) -> "Traffic":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, kept: bool) -> None:
        limits = httpx.Limits(max_keepalive_connections=1 if kept else 0)
        with httpx.Client(base_url=self._url, timeout=20, limits=limits, verify=False) as client:
            while not self._stop.is_set():
                try:
                    response = client.post(INFER, json=rounds(2))
                except httpx.HTTPError as error:
                    self.failures.append(repr(error))
                else:
                    hint = response.headers.get("connection")
                    self.answers.append((time.monotonic(), response.status_code, hint))


def test_a_drain_under_traffic_fails_no_request(slow_model: Path) -> None:
    with serving(slow_model, drain_seconds="5") as server:
        with Traffic(server.url) as traffic:
            eventually(lambda: len(traffic.answers) > 20)
            server.terminate()
            server.wait_for("draining")
            drained_at = time.monotonic()
            # Not ready any more, but alive and serving, over new connections as well.
            with httpx.Client(base_url=server.url, verify=False) as client:
                assert client.get("/v2/health/ready").status_code == 503
                assert client.get("/v2/health/live").json() == {"live": True, "ready": False}
                assert client.get(f"/v2/models/{NAME}/ready").status_code == 503
            served_for = 3.0
            eventually(lambda: traffic.answers[-1][0] > drained_at + served_for)
            traffic.stop()
        assert traffic.failures == []
        assert {status for _, status, _ in traffic.answers} == {200}
        late = [hint for at, _, hint in traffic.answers if at > drained_at + 0.2]
        assert set(late) == {"close"}
        assert server.process.wait(10) == 0


def test_what_is_in_flight_at_the_end_of_the_drain_is_finished(slow_model: Path) -> None:
    with (
        serving(slow_model, drain_seconds="0", request_timeout_seconds="1.5") as server,
        ThreadPoolExecutor() as pool,
    ):
        running = pool.submit(server.infer, SLOW)
        eventually(lambda: server.metric("tailbound_runtime_requests_in_flight") == 1)
        server.terminate()
        assert running.result().status_code == 504  # its own deadline, not a broken connection
        assert server.process.wait(10) == 0


def test_ctrl_c_drains_too(arithmetic_model: Path) -> None:
    with serving(arithmetic_model) as server:
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(10) == 0


@pytest.fixture
def arithmetic_model(tmp_path: Path) -> Path:
    return models.arithmetic(tmp_path / "m.onnx")
