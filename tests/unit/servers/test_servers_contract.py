"""The rendered pods of servers that cannot be run here, against what their documentation names.

Sources: tensorflow.org/tfx/serving (serving_config, api_rest), docs.openvino.ai (parameters, metrics),
TGI's launcher reference, SGLang's server arguments and what its /health does, and the variables of NVIDIA NIM
for LLMs 1 and 2.
"""

import copy
from dataclasses import dataclass
from typing import Any

import pytest
import yaml
from tailbound.api.names import SERVER_METRICS_ANNOTATION
from tailbound.api.parsing import InvalidObject, parse
from tailbound.api.server_metrics import metrics_of
from tailbound.api.servingruntime import ClusterServingRuntime

from tests.unit.servers.test_servers_rendered import BATCHED, FILES, rendered, runtime_of

HTTP, GRPC = ("http", 8080), ("grpc", 8081)
OPENED = {"tcpSocket": {"port": "http"}}


def _get(path: str) -> dict[str, Any]:
    return {"httpGet": {"path": path, "port": "http"}}


@dataclass(frozen=True)
class Contract:
    """What one server is promised. Words are arguments, variables as NAME=VALUE, or lines of files."""

    ready: dict[str, Any]
    live: dict[str, Any] | None
    ports: tuple[tuple[str, int], ...]
    words: tuple[str, ...]
    """Those that it always has."""
    batched: tuple[str, ...]
    """Those of batches of up to 16 rows that wait for up to 5 ms."""
    alone: tuple[str, ...]
    """Those without batching."""
    metrics: dict[str, Any] | None
    refused: str
    """A format that it does not serve."""
    health_seconds: int = 0
    """What its path of health takes to answer at most, while the server is in order."""


CONTRACTS = {
    "tfserving": Contract(
        ready=OPENED,
        live=None,
        ports=(HTTP, GRPC),
        words=(
            *("tensorflow_model_server", "--model_name=churn", "--model_base_path=/tmp/models/churn"),
            *("--port=8081", "--rest_api_port=8080", "--rest_api_timeout_in_ms=30000"),
            'prometheus_config { enable: true, path: "/metrics" }',
            "--monitoring_config_file=/etc/tailbound/tfserving/monitoring.txt",
        ),
        batched=(
            *(
                "--enable_batching=true",
                "max_batch_size { value: 16 }",
                "batch_timeout_micros { value: 5000 }",
            ),
            "--batching_parameters_file=/etc/tailbound/tfserving/batching.txt",
        ),
        alone=("--enable_batching=false",),
        metrics=None,
        refused="onnx",
    ),
    "openvino": Contract(
        ready=_get("/v2/models/churn/ready"),
        live=_get("/v2/health/live"),
        ports=(HTTP, GRPC),
        words=(
            *("/ovms/bin/ovms", "--model_name=churn", "--model_path=/tmp/models", "--port=8081"),
            *("--rest_port=8080", "--metrics_enable"),
        ),
        batched=(),
        alone=(),
        metrics={
            "requests": "ovms_inference_time_us_count",
            "requestTime": ["ovms_inference_time_us_sum"],
            "unit": "microseconds",
        },
        refused="savedmodel",
    ),
    "tgi": Contract(
        ready=_get("/health"),
        live=_get("/health"),
        ports=(HTTP,),
        words=(
            "--model-id=/mnt/models",
            "--port=8080",
            "--num-shard=2",
            "--max-concurrent-requests=128",
            "--usage-stats=off",
            "HF_HUB_OFFLINE=1",
            "HF_HOME=/tmp/huggingface",
        ),
        batched=("--max-batch-size=16",),
        alone=("--max-batch-size=128",),
        metrics={
            "requests": "tgi_request_inference_duration_count",
            "requestTime": ["tgi_request_inference_duration_sum"],
            "queue": "tgi_queue_size",
        },
        refused="gguf",
    ),
    "sglang": Contract(
        ready=_get("/health"),
        live=_get("/health"),
        ports=(HTTP,),
        words=(
            *("sglang.launch_server", "--model-path=/mnt/models", "--served-model-name=churn"),
            *("--host=0.0.0.0", "--port=8080", "--tp=2", "--enable-metrics", "HF_HUB_OFFLINE=1"),
        ),
        batched=("--max-running-requests=16",),
        alone=("--max-running-requests=256",),
        metrics=None,
        refused="gguf",
        health_seconds=20,
    ),
    "nim": Contract(
        ready=_get("/v1/health/ready"),
        live=_get("/v1/health/live"),
        ports=(HTTP,),
        words=(
            *("NIM_HTTP_API_PORT=8080", "NIM_MODEL_NAME=/mnt/models", "NIM_SERVED_MODEL_NAME=churn"),
            *("NIM_SERVER_PORT=8080", "NIM_MODEL_PATH=/mnt/models"),
            "NIM_CACHE_PATH=/tmp/nim",
        ),
        batched=(),
        alone=(),
        metrics=None,
        refused="huggingface",
    ),
}


def _words(pod: dict[str, Any]) -> set[str]:
    (server,) = pod["spec"]["containers"]
    lines = [*server.get("command", ()), *server.get("args", ())]
    texts = [word for line in lines for word in line.split()]
    texts += [f"{each['name']}={each['value']}" for each in server["env"] if "value" in each]
    annotations = pod["metadata"]["annotations"].items()
    return {*texts, *(line for name, text in annotations if "/file-" in name for line in text.splitlines())}


def _handler(probe: dict[str, Any] | None) -> dict[str, Any] | None:
    ways = ("httpGet", "tcpSocket")
    return None if probe is None else {way: probe[way] for way in ways if way in probe}


@pytest.mark.parametrize("name", CONTRACTS)
def test_the_pod_keeps_the_contract_of_its_server(name: str) -> None:
    contract = CONTRACTS[name]
    runtime = runtime_of(next(path for path in FILES if path.stem == name))
    assert not runtime.spec.serves(contract.refused)
    for supported in runtime.spec.formats:
        for batching, own, other in (
            (BATCHED, contract.batched, contract.alone),
            ({"mode": "none"}, contract.alone, contract.batched),
        ):
            pod = rendered(runtime, supported.name, batching)
            (server,) = pod["spec"]["containers"]
            words = _words(pod)
            assert {*contract.words, *own} - words == set()
            # Files are there in both cases; what reads them is an argument.
            assert {word for word in other if word.startswith("--")} & words == set()
            ports = {(each["name"], each["containerPort"]) for each in server["ports"]}
            assert ports == set(contract.ports)
            probes = [server.get(f"{kind}Probe") for kind in ("startup", "readiness", "liveness")]
            assert [*map(_handler, probes)] == [contract.ready, contract.ready, contract.live]
            assert min(each["timeoutSeconds"] for each in probes if each) > contract.health_seconds
            start = server["startupProbe"]
            assert start["periodSeconds"] * start["failureThreshold"] >= 1800, "large weights load for long"
            (hold,) = (each for each in pod["spec"]["initContainers"] if each["name"] == "hold")
            watched = hold["args"][hold["args"].index("--watch") + 1 : hold["args"].index("--least")]
            assert watched == [str(number) for _, number in contract.ports]
            assert server["lifecycle"]["preStop"]["httpGet"]["path"] == "/release"
            found = metrics_of(pod["metadata"]["annotations"].get(SERVER_METRICS_ANNOTATION))
            mapped = found and found.model_dump(mode="json", by_alias=True, exclude_defaults=True)
            assert mapped == contract.metrics


@pytest.mark.parametrize("name", CONTRACTS)
def test_what_would_break_the_pod_is_refused_with_the_field(name: str) -> None:
    path = next(path for path in FILES if path.stem == name)
    good = yaml.safe_load(path.read_text().replace("image: IMAGE", "image: s:1"))
    sidecar = {
        "name": "proxy",
        "image": "p:1",
        "restartPolicy": "Always",
        "livenessProbe": {"tcpSocket": {"port": 8080}},
    }
    changes: tuple[tuple[dict[str, Any], str], ...] = (
        ({"initContainers": [sidecar]}, "proxy, whose probe asks a port of server.ports"),
        ({"server": {**good["spec"]["server"], "preStop": {"exec": {"command": ["x"]}}}}, "drain.mode hold"),
        (
            {"server": {**good["spec"]["server"], "ports": [{"name": "rest", "containerPort": 1}]}},
            "named http",
        ),
        ({"protocols": []}, "name a protocol, or write custom"),
    )
    for change, says in changes:
        bad = copy.deepcopy(good)
        bad["spec"] |= change
        found = parse(ClusterServingRuntime, bad)
        assert isinstance(found, InvalidObject), says
        assert says in found.message
