"""Each foreign server's runtime renders a pod that Tailbound may make, with what its server must be given."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tailbound.api.hardwareclass import HardwareClass
from tailbound.api.inferenceservice import InferenceService
from tailbound.api.parsing import InvalidObject, parse
from tailbound.api.servingruntime import ClusterServingRuntime, DrainMode, RuntimeTemplate
from tailbound.revisions.model_mounts import Fetcher
from tailbound.revisions.pod import Ingredients, context, pod_template
from tailbound.revisions.rendering import Rendered, RenderRequest
from tailbound.revisions.restricted import violations
from tailbound.revisions.template import expand

from tests.integration.servers.results import CONSTRAINTS, NOT_RUN, proven, stored

ROOT = Path(__file__).parents[3]
FILES = sorted((ROOT / "charts/tailbound/files/runtimes").glob("*.yaml"))
DOCS = ROOT / "docs/servers.md"
BATCHED = {"mode": "dynamic", "maxBatchSize": 16, "preferredBatchSizes": [4, 8], "maxQueueDelay": "5ms"}
# What the rendered pod must hold with these batching settings and on two devices; "none": without batching.
GIVEN: dict[str, tuple[str, ...]] = {
    "triton": ('name: "churn"', "max_batch_size: 16", "preferred_batch_size: [ 4,8 ]", "microseconds: 5000"),
    "vllm": (
        "--model=/mnt/models",
        "--served-model-name=churn",
        "--max-num-seqs=16",
        "--tensor-parallel-size=2",
    ),
    "llamacpp": ("--metrics", '"--parallel","16"', "--kv-unified"),
    "mlserver": ('"max_batch_size": 16', '"max_batch_time": 0.005', '"http_port": 8080'),
    "torchserve": (
        '"minWorkers": 2',
        '"batchSize": 16',
        '"maxBatchDelay": 5',
        "metrics_mode=prometheus",
        "--disable-token-auth",
    ),
    "rayserve": (
        '"serve","run","/mnt/models/model.ray-serve"',
        "RAY_SERVE_DEFAULT_HTTP_HOST",
        "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S",
        '{"CPU": $(TAILBOUND_CPU_LIMIT)}',
    ),
    "bentoml": ('"bentoml","serve","/mnt/models"', "BENTOML_DO_NOT_TRACK"),
    "tfserving": (
        "ln -sfn /mnt/models /tmp/models/churn/1",
        "--rest_api_port=8080",
        "--enable_batching=true",
        "max_batch_size { value: 16 }",
    ),
    "openvino": (
        "ln -sfn /mnt/models /tmp/models/1",
        "--model_name=churn",
        "--rest_port=8080",
        "--metrics_enable",
    ),
    "tgi": ("--model-id=/mnt/models", "--num-shard=2", "--max-batch-size=16"),
    "sglang": ("--model-path=/mnt/models", "--tp=2", "--max-running-requests=16", "--enable-metrics"),
    "nim": ("NIM_HTTP_API_PORT", "NIM_SERVED_MODEL_NAME"),
}


def runtime_of(path: Path) -> ClusterServingRuntime:
    document = yaml.safe_load(
        path.read_text().replace("image: IMAGE", "image: registry.example.com/server:1")
    )
    found = parse(ClusterServingRuntime, document)
    assert not isinstance(found, InvalidObject), found
    return found


def rendered(
    runtime: ClusterServingRuntime, model_format: str, batching: dict[str, Any], devices: int = 2
) -> dict[str, Any]:
    """The pod template of a service with this runtime."""
    model = {"uri": "https://m.example.com/a", "format": model_format, "sha256": "a" * 64}
    service = InferenceService.model_validate(
        {
            "metadata": {"name": "churn", "namespace": "risk"},
            "spec": {"model": model, "batching": batching, "timeout": "30s"},
        }
    )
    resources = [{"name": "nvidia.com/gpu", "count": devices}] if devices else []
    hardware = HardwareClass.model_validate({"metadata": {"name": "gpu"}, "spec": {"resources": resources}})
    spec = runtime.spec
    parts = spec.model_dump(mode="json", by_alias=True, exclude_none=True, include={"server", "files"})
    values = json.dumps(context(service, hardware, "churn-r1-abcdef"))
    made = expand(RenderRequest(runtime.metadata.name, json.dumps(parts), values, "risk"))
    assert isinstance(made, Rendered), made
    template = parse(RuntimeTemplate, json.loads(made.template_json))
    assert not isinstance(template, InvalidObject), template
    return pod_template(
        Ingredients(
            revision="churn-r1-abcdef",
            service=service,
            server=template.server,
            files=template.files,
            volumes=spec.volumes,
            drain=spec.drain,
            hardware_class=hardware,
            fetcher=Fetcher("tailbound:1", "Never", (), (), ()),
            inference_paths=spec.inference_calls,
            metrics=spec.metrics,
        )
    )


def test_every_runtime_of_the_chart_is_examined() -> None:
    assert [path.stem for path in FILES] == sorted(GIVEN)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_pod_of_every_format_is_restricted_probed_held_and_given_its_settings(path: Path) -> None:
    runtime = runtime_of(path)
    assert runtime.spec.drain.mode is DrainMode.HOLD
    assert runtime.spec.priority < 0, "it would take the format from Tailbound's own server"
    for supported in runtime.spec.formats:
        rendered(runtime, supported.name, {"mode": "none"})
        pod = rendered(runtime, supported.name, BATCHED)
        assert violations(pod, None) == ()
        (server,) = pod["spec"]["containers"]
        assert {"startupProbe", "readinessProbe", "lifecycle"} <= server.keys()
        assert server["resources"]["limits"]["nvidia.com/gpu"] == "2"
        # A shell that only waits for the server does not pass SIGTERM on, and as first process ignores it.
        *_, last = server.get("command", ("",))
        assert server.get("command", ())[:1] != ["sh"] or "exec " in last or "trap '" in last
        text = json.dumps(pod, separators=(",", ":")).replace('\\"', '"')
        assert [each for each in GIVEN[path.stem] if each not in text] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_server_has_an_example_of_one_of_its_formats(path: Path) -> None:
    example = yaml.safe_load((ROOT / f"examples/server-{path.stem}.yaml").read_text())
    assert example["spec"]["runtime"] == {"name": path.stem}
    assert runtime_of(path).spec.serves(example["spec"]["model"]["format"])
    assert not isinstance(parse(InferenceService, example), InvalidObject)


def table() -> str:
    """The table of docs/servers.md."""
    heads = ("Server", "Formats", "Protocols", "On stop", "Capacity from", "Proven")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for path in FILES:
        spec = runtime_of(path).spec
        why = path.read_text().partition("mode: hold # ")[2].partition("\n")[0]
        formats = ", ".join(supported.name for supported in spec.formats)
        protocols = ", ".join(spec.protocols)
        learned = "gateways" if spec.metrics is None else "its own metrics"
        parts = (path.stem, formats, protocols, f"held: {why}", learned, proven(path.stem))
        lines.append(f"| {' | '.join(parts)} |")
    return "\n".join(lines) + "\n"


def test_the_documented_table_is_that_of_the_runtimes() -> None:
    assert table() in DOCS.read_text()


def test_every_server_was_run_as_it_is_pinned_or_says_why_not() -> None:
    results = stored()
    assert sorted({*results, *NOT_RUN}) == sorted(GIVEN)
    assert results.keys() & NOT_RUN.keys() == set()
    for name, result in results.items():
        pins = (CONSTRAINTS / f"{name}.txt").read_text().splitlines()
        assert result["package"] in pins, f"run make test-servers T={name}"
        assert (result["held_lost"], result["cut_lost"] > 0, result["largest_batch"] > 1) == (0, True, True)
