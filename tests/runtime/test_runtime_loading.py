"""What the process does with a model file: it serves it, or ends and says why."""

import asyncio
import json
import subprocess
import threading
from pathlib import Path
from typing import Any

import httpx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from tailbound_runtime.loading import in_thread

from tests.runtime import models
from tests.runtime.process import COMMAND, environment


def corrupt(path: Path) -> Path:
    path.write_bytes(b"this is no model" * 1000)
    return path


def truncated(path: Path) -> Path:
    path.write_bytes(models.magika_model().read_bytes()[:500_000])
    return path


def content(text: bytes) -> Any:
    def write(path: Path) -> Path:
        path.write_bytes(text)
        return path

    return write


def without_outputs(path: Path) -> Path:
    node = helper.make_node("Identity", ["x"], ["y"])
    graph = helper.make_graph([node], "g", [models.tensor("x", TensorProto.FLOAT, ["n"])], [])
    path.write_bytes(helper.make_model(graph, ir_version=8).SerializeToString())
    return path


def optional(path: Path) -> Path:
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, ["n"]))
    graph = helper.make_graph(
        [helper.make_node("OptionalGetElement", ["x"], ["y"])],
        "g",
        [helper.make_value_info("x", kind)],
        [models.tensor("y", TensorProto.FLOAT, ["n"])],
    )
    opset = [helper.make_opsetid("", 18)]
    path.write_bytes(helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString())
    return path


def float8(path: Path) -> Path:
    cast = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT8E4M3FN)
    graph = helper.make_graph(
        [cast],
        "g",
        [models.tensor("x", TensorProto.FLOAT, ["n"])],
        [models.tensor("y", TensorProto.FLOAT8E4M3FN, ["n"])],
    )
    opset = [helper.make_opsetid("", 19)]
    path.write_bytes(helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString())
    return path


def empty(path: Path) -> Path:
    path.write_bytes(b"")
    return path


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (corrupt, "cannot load"),
        (truncated, "cannot load"),
        (empty, "is no ONNX model: it is empty"),
        (
            content(b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 3\n"),
            "it is a Git LFS pointer, which stands for the model's file: run `git lfs pull`",
        ),
        (content(b"\n<!DOCTYPE html>\n<html>"), "it is an HTML page"),
        (content(b"<?xml version='1.0'?><Error>"), "it is an XML document"),
        (content(b"PK\x03\x04"), "it is a zip archive, as PyTorch's own files are"),
        (without_outputs, "the model has no outputs"),
        (optional, "type optional(tensor(float)), which this server cannot carry: requests always have all"),
        (lambda path: path, "cannot load"),
        (
            models.sequence,
            "output 'y' of the model has type seq(tensor(float)), which this server cannot carry",
        ),
        (
            float8,
            "has type tensor(float8e4m3fn), which this server cannot carry: put a Cast from FP32 or FP16",
        ),
        (
            lambda _: Path(onnxruntime.__file__).parent / "datasets" / "logreg_iris.onnx",
            "output 'probabilities' of the model has type seq(map(int64,tensor(float)))",
        ),
    ],
    ids=[
        "corrupt",
        "truncated",
        "empty",
        "lfs",
        "html",
        "xml",
        "zip",
        "no-outputs",
        "optional",
        "absent",
        "sequence",
        "float8",
        "zipmap",
    ],
)
def test_a_model_that_cannot_be_served_ends_the_process_at_once_and_says_why(
    tmp_path: Path, make: Any, said: str
) -> None:
    log = tmp_path / "termination-log"
    log.touch()
    model = make(tmp_path / "m.onnx")
    ended = subprocess.run(
        COMMAND,
        env=environment(model, termination_log=str(log), drain_seconds="600"),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ended.returncode == 1
    assert ended.stderr == ""
    termination = json.loads(log.read_text())
    assert termination["reason"] == "ModelLoadFailed"
    assert said in termination["message"]
    assert json.loads(ended.stdout.splitlines()[-1])["error"] == termination["message"]


def test_the_command_serves_a_model_file_without_anything_else(tmp_path: Path) -> None:
    model = models.arithmetic(tmp_path / "adder.onnx")
    command = [*COMMAND, "serve", str(model), "--port", "0", "--grpc-port", "0", "--batching", "dynamic"]
    with subprocess.Popen(command, env=environment(model), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        events = []
        for line in process.stdout:
            events.append(json.loads(line))
            if events[-1]["event"] == "ready":
                break
        port = next(event["port"] for event in events if event["event"] == "listening")
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", verify=False) as client:
            assert client.get("/v2/models/adder/config").json()["max_batch_size"] == 32
        process.terminate()
        assert process.wait(30) == 0


async def test_a_load_whose_caller_leaves_ends_without_an_error_in_its_thread() -> None:
    """SIGTERM may come while a model loads."""
    begun, ends = threading.Event(), threading.Event()
    failed: list[threading.ExceptHookArgs] = []

    def work() -> None:
        begun.set()
        ends.wait()

    hook, threading.excepthook = threading.excepthook, failed.append
    try:
        loading = in_thread(work)
        begun.wait()
        loading.cancel()
        await asyncio.sleep(0)  # what the end of the awaiting one causes
        ends.set()
        for thread in threading.enumerate():
            if thread.name == "load":
                thread.join()
    finally:
        threading.excepthook = hook
    assert failed == []
