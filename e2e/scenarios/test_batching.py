"""Requests that share runs of the model: each caller gets its own answer, and the metrics show the runs."""

import re
from concurrent.futures import ThreadPoolExecutor

from e2e.scenarios.library.scene import Scene
from e2e.scenarios.library.waiting import Unmet

PORT = 8080
CALLERS = 6


def metric(scene: Scene, pod: str, name: str) -> float:
    """One series without labels, as the pod tells it."""
    path = f"/api/v1/namespaces/{scene.namespace}/pods/{pod}:{PORT}/proxy/metrics"
    found = re.search(
        rf"^tailbound_runtime_{name} (\S+)$", scene.api.raw("GET", path)[1].decode(), re.MULTILINE
    )
    assert found is not None, f"pod {pod} exports no {name}"
    return float(found[1])


def test_concurrent_requests_share_runs_and_each_gets_its_own_answer(scene: Scene) -> None:
    model = scene.model(slope=2.0, offset=1.0)
    # The delay is long enough for what the load sends in answer to one run to be in the next one together.
    scene.serve("batched", model, batching={"mode": "dynamic", "maxBatchSize": 8, "maxQueueDelay": "100ms"})
    (pod,) = (pod["metadata"]["name"] for pod in scene.pods("batched"))
    client = scene.world.client
    rows = [[float(number), float(10 * number), -1.0] for number in range(CALLERS)]
    with (
        client.load(scene.namespace, "batched", workers=6) as load,
        ThreadPoolExecutor(CALLERS) as pool,
    ):
        scene.wait(
            "requests of the load in the model",
            lambda: metric(scene, pod, "batches_total") > 5 or Unmet("none yet"),
            60,
        )
        answers = pool.map(lambda values: client.infer(scene.namespace, "batched", values), rows)
        for values, answer in zip(rows, answers, strict=True):
            assert answer.status == 200, answer
            assert answer.json()["outputs"][0]["data"] == model.expected(values)
    load.assert_flawless(at_least=20)
    batches, batch_rows = (metric(scene, pod, f"{name}_total") for name in ("batches", "batch_rows"))
    assert batch_rows == load.result["requests"] + CALLERS
    assert batch_rows > 1.5 * batches, f"{batch_rows:g} requests took {batches:g} runs"
