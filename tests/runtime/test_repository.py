"""Several models in one process: a folder of versions, and loading and unloading while it serves."""

import asyncio
import concurrent.futures
import gc
import gzip
import json
import os
import re
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import structlog
import tritonclient.grpc as triton
from onnx import TensorProto
from tailbound_runtime import command
from tailbound_runtime.batch import UNBATCHED
from tailbound_runtime.control import Control
from tailbound_runtime.errors import ApiError
from tailbound_runtime.metrics import Metrics
from tailbound_runtime.model import Model
from tailbound_runtime.models import Models
from tailbound_runtime.reception import MOST_CALL_BYTES
from tailbound_runtime.repository import Files, Folder, ModelFile, RepositoryError
from tailbound_runtime.signature import Signature

from tests.runtime import models
from tests.runtime.doubling import Doubling
from tests.runtime.process import Server, eventually, rpc_address, serving
from tests.runtime.test_worker import later, request, thread_of

ROW = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [-2.5]}]}
SLOW = {"inputs": [{"name": "rounds", "datatype": "INT64", "shape": [1], "data": [300]}]}
LIMIT = 50_000


def version(folder: Path, name: str, number: str) -> Path:
    """Where this version's file goes."""
    place = folder / name / number
    place.mkdir(parents=True)
    return place / "model.onnx"


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repository")
    models.unary(version(folder, "unary", "2"), "Neg")
    models.unary(version(folder, "unary", "10"), "Abs")
    models.counting(version(folder, "slow", "1"))
    (folder / "unary" / "drafts").mkdir()
    (folder / ".git").mkdir()
    return folder


@pytest.fixture(scope="module")
def server(repository: Path) -> Iterator[Server]:
    with serving(
        repository,
        model_path="",
        model_repository=str(repository),
        model_control="explicit",
        model_memory_bytes=str(LIMIT),
        request_log_every="1",
        grpc_port="0",
    ) as running:
        yield running


def infer(server: Server, name: str, body: Any = ROW) -> Any:
    return server.client.post(f"/v2/models/{name}/infer", json=body)


def call(server: Server, name: str, what: str, body: Any = None) -> tuple[int, str]:
    answer = server.client.post(f"/v2/repository/models/{name}/{what}", json=body)
    return answer.status_code, answer.json().get("error", "")


def index(server: Server) -> dict[str, str]:
    return {each["name"]: each["version"] for each in server.client.post("/v2/repository/index").json()}


def test_each_model_is_served_in_its_greatest_version_and_counted_apart(server: Server) -> None:
    answer = infer(server, "unary").json()
    assert (answer["model_version"], answer["outputs"][0]["data"]) == ("10", [2.5])
    assert infer(server, "unary/versions/10").status_code == 200
    unknown = infer(server, "unary/versions/2")
    assert unknown.status_code == 404
    assert "model 'unary', version '10'" in unknown.json()["error"]
    assert infer(server, "slow", {**SLOW, "outputs": [{"name": "done"}]}).json()["model_version"] == "1"
    assert [server.client.get(f"/v2/models/{name}/ready").status_code for name in ("unary", "slow")] == [
        200
    ] * 2
    assert index(server) == {"slow": "1", "unary": "10"}
    text = server.client.get("/metrics").text
    assert re.search(r'_requests_total\{code="200",model="unary",model_version="10"\} 2\.0', text)
    assert re.search(r'_requests_total\{code="200",model="slow",model_version="1"\} 1\.0', text)
    assert re.search(r'nv_inference_request_success\{model="slow",version="1"\} 1\n', text)
    assert text.count("# TYPE tailbound_runtime_requests_total counter") == 1
    assert {each["name"] for each in server.client.get("/v2/models/stats").json()["model_stats"]} == set(
        index(server)
    )


def test_a_load_that_fails_leaves_the_served_version_as_it_is(server: Server, repository: Path) -> None:
    file = version(repository, "unary", "11")
    file.write_bytes(b"no model")
    status, error = call(server, "unary", "load")
    assert (status, "version 10 is served on" in error) == (400, True), error
    assert infer(server, "unary").json()["model_version"] == "10"
    file.write_bytes(b"x" * LIMIT)
    status, error = call(server, "unary", "load")
    assert (status, "--model-memory" in error, str(LIMIT) in error) == (400, True, True), error
    models.unary(file, "Neg")
    assert call(server, "unary", "load") == (200, "")
    server.wait_for("model served")
    known = len(server.lines)
    answer = infer(server, "unary").json()
    assert (answer["model_version"], answer["outputs"][0]["data"]) == ("11", [2.5])
    assert call(server, "unary", "load") == (200, ""), "the same version once more"
    server.wait_for("model served")
    assert "request" in [line["event"] for line in server.lines[known:]]


def test_who_is_being_served_keeps_its_model_until_it_has_its_answer(
    server: Server, repository: Path
) -> None:
    models.counting(version(repository, "slow", "2"))
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        running = pool.submit(infer, server, "slow", SLOW)
        flying = 'tailbound_runtime_requests_in_flight{model="slow",model_version="1"}'
        eventually(lambda: server.metric(flying) == 1)
        assert call(server, "slow", "load") == (200, "")
        assert index(server)["slow"] == "2"
        assert call(server, "slow", "unload") == (200, "")
        assert infer(server, "slow", SLOW).status_code == 404
        answer = running.result()
    assert (answer.status_code, answer.json()["model_version"]) == (200, "1")
    assert server.client.get("/v2/health/ready").status_code == 200
    assert call(server, "slow", "unload")[0] == 404
    assert call(server, "slow", "load") == (200, "")


@pytest.mark.parametrize(
    ("path", "body", "status", "said"),
    [
        ("nobody/load", None, 404, "no model 'nobody'"),
        ("nobody/unload", None, 404, "no model 'nobody'"),
        ("..%2F..%2Fetc/load", None, 404, "no model '../../etc'"),
        (".git/load", None, 404, "no model '.git'"),
        ("unary/load", {"parameters": {"config": "{}"}}, 400, "'config' is not supported"),
        ("unary/load", {"parameters": {"file:1/model.onnx": "AAAA"}}, 400, "'file:1/model.onnx'"),
        ("unary/load", {"ignored": "a" * MOST_CALL_BYTES}, 413, f"longer than {MOST_CALL_BYTES} bytes"),
    ],
)
def test_a_call_that_cannot_be_done_says_why(
    server: Server, path: str, body: Any, status: int, said: str
) -> None:
    name, _, what = path.rpartition("/")
    found = call(server, name, what, body)
    assert (found[0], said in found[1]) == (status, True), found
    packed = gzip.compress(json.dumps(body or {}).encode())
    again = server.client.post(
        f"/v2/repository/models/{path}", content=packed, headers={"content-encoding": "gzip"}
    )
    assert (again.status_code, again.json()["error"]) == found
    assert server.client.get(f"/v2/repository/models/{path}").status_code == 405


def test_a_triton_client_loads_and_unloads_over_grpc(server: Server, repository: Path) -> None:
    models.unary(version(repository, "other", "3"), "Neg")
    with triton.InferenceServerClient(rpc_address(server)) as client:

        def listed() -> dict[str, str]:
            models = client.get_model_repository_index().models
            return {each.name: each.version for each in models if each.state == "READY"}

        refused: list[tuple[Callable[[], object], str]] = [
            (lambda: client.load_model("nobody"), "NOT_FOUND.*no model 'nobody'"),
            (lambda: client.unload_model("other"), "NOT_FOUND.*no model 'other'"),
            (lambda: client.load_model("other", config="{}"), "INVALID_ARGUMENT.*'config' is not supported"),
            (lambda: client.load_model("a" * MOST_CALL_BYTES), f"longer than {MOST_CALL_BYTES} bytes"),
        ]
        for call, said in refused:
            with pytest.raises(triton.InferenceServerException, match=said):
                call()
        client.load_model("other")
        assert listed()["other"] == "3"
        x: Any = triton.InferInput("x", [1], "FP32")
        x.set_data_from_numpy(np.array([-2.5], np.float32))
        answers = [client.infer("other", [x]) for _ in range(2)]  # read anew, and as known
        models.unary(version(repository, "other", "4"), "Abs")
        client.load_model("other")
        answers += [client.infer("other", [x]) for _ in range(2)]
        assert [(each.get_response().model_version, *each.as_numpy("y").tolist()) for each in answers] == [
            ("3", 2.5),
            ("3", 2.5),
            ("4", 2.5),
            ("4", 2.5),
        ]
        client.unload_model("other")
        assert "other" not in listed()


async def test_the_engine_of_a_model_that_is_given_up_is_freed_and_its_threads_end() -> None:
    def names() -> set[str]:
        return {each.name for each in threading.enumerate() if each not in before}

    before = set(threading.enumerate())
    engine = Doubling()
    thread = thread_of(engine, UNBATCHED)
    model = Model("m", "1", thread._metrics)
    model.open(Signature("m", {}, {}, UNBATCHED, "test_onnx"), thread)
    model.take()
    model.retire()
    assert (await thread.run(request([1]), later()))[0].tolist() == [[2]], "it serves whom it has"
    freed = weakref.ref(engine)
    del engine, thread
    gc.disable()
    try:
        model.give()
        # Not only when the interpreter looks for garbage: it no longer looks at what was there at the start.
        await asyncio.to_thread(eventually, lambda: freed() is None)
        await asyncio.to_thread(eventually, lambda: "inference" not in names())
    finally:
        gc.enable()
    assert model.closed


@pytest.mark.parametrize("leaves", [False, True])
@pytest.mark.parametrize(
    ("name", "raised", "logged"),
    [("there", None, 0), ("absent", ApiError, 0), ("broken", ZeroDivisionError, 1)],
)
async def test_a_call_goes_on_when_its_client_leaves_and_only_faults_of_the_server_are_logged(
    tmp_path: Path, leaves: bool, name: str, raised: type[Exception] | None, logged: int
) -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def load(file: ModelFile, metrics: Metrics) -> Model:
        begun.set()
        await may_end.wait()
        return Model(file.name, str(1 // (file.name != "broken")), metrics)

    for each in ("there", "broken"):
        version(tmp_path, each, "1").touch()
    served, unseen = Models(), list[dict[str, Any]]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unseen.append(context))
    control = Control(Folder(tmp_path), served, load, lambda _: Metrics(), LIMIT)
    call = asyncio.create_task(control.load(name))
    if name != "absent":
        await begun.wait()
    else:
        await asyncio.sleep(0)  # it looks into the folder, in another thread
    with structlog.testing.capture_logs() as lines:
        if leaves:
            call.cancel()
        may_end.set()
        assert isinstance(
            (await asyncio.gather(call, return_exceptions=True))[0],
            asyncio.CancelledError if leaves else raised or type(None),
        )
        if control._tasks:
            await asyncio.wait([*control._tasks])
        await asyncio.sleep(0)
    del call
    gc.collect()
    assert ("there" in served) == (name == "there")
    assert len([line for line in lines if line["log_level"] == "error"]) == (logged if leaves else 0)
    assert unseen == []


def test_a_model_that_is_replaced_ends_with_its_last_request() -> None:
    served, first, second = Models(), Model("m", "1", Metrics(), 5), Model("m", "2", Metrics(), 7)
    served.put(first)
    for _ in range(2):
        served.find("m", "").take()
    served.put(second)
    assert served.find("m", "") is second
    with pytest.raises(ApiError, match="version '2'"):
        served.find("m", "1")
    first.give()
    assert (first.closed, served.size_bytes) == (False, 12)
    first.give()
    assert (first.closed, second.closed, served.size_bytes) == (True, False, 7)
    served.remove("m")
    assert second.closed


def test_a_folder_that_is_laid_out_otherwise_is_refused(tmp_path: Path) -> None:
    models.identity(tmp_path / "model.onnx", TensorProto.FLOAT)
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "0").mkdir()
    with pytest.raises(RepositoryError, match=r"put it at m/VERSION/model\.onnx"):
        Folder(tmp_path).find("m")
    (unnamed := tmp_path / os.fsdecode(b"m\xff")).mkdir()
    with pytest.raises(RepositoryError, match="can be part of no URL: rename it"):
        Folder(tmp_path).find(unnamed.name)
    with pytest.raises(RepositoryError, match="cannot be read"):
        Folder(tmp_path / "none").names()


def test_all_files_of_a_model_count(tmp_path: Path) -> None:
    """Whatever their names are, and behind links to folders, which lead in a circle here."""
    odd = tmp_path / "m[1].onnx"
    models.identity(odd, TensorProto.FLOAT)
    odd.with_name(f"{odd.name}.data").write_bytes(b"weights")
    file = Files({"m": odd}).find("m")
    assert file is not None
    assert file.size_bytes == 7 + odd.stat().st_size
    models.identity(version(tmp_path / "all", "m", "1"), TensorProto.FLOAT)
    (weights := tmp_path / "weights").mkdir()
    (weights / "a.bin").write_bytes(b"weights")
    for link in (weights / "back", weights / "again"):
        link.symlink_to(tmp_path)
    (tmp_path / "all" / "m" / "1" / "weights").symlink_to(weights)
    file = Folder(tmp_path / "all").find("m")
    assert file is not None
    everything = (each.stat().st_size for each in tmp_path.rglob("*") if each.is_file())
    assert file.size_bytes == sum(everything)


def test_the_command_names_files_by_their_stems_or_a_folder(tmp_path: Path, capsys: Any) -> None:
    assert command.environment(["serve", "a/one.onnx", "two.onnx"])["TAILBOUND_MODELS"] == (
        '{"one": "a/one.onnx", "two": "two.onnx"}'
    )
    assert command.environment(["serve", str(tmp_path)])["TAILBOUND_MODEL_REPOSITORY"] == str(tmp_path)
    for wrong, said in (
        (["a/m.onnx", "b/m.onnx"], "two files have the name 'm'"),
        (["a.onnx", "b.onnx", "--name", "m"], "--name"),
        (["a.onnx", str(tmp_path)], "give it alone"),
    ):
        with pytest.raises(SystemExit):
            command.environment(["serve", *wrong])
        assert said in capsys.readouterr().err
