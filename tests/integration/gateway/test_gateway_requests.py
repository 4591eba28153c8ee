"""What a client gets, through the real Envoy."""

import json
from collections import Counter
from datetime import datetime
from typing import Any

import grpc.aio
import pytest
from tailbound.api.inference_paths import ServerProtocol, inference_paths
from tailbound.api.names import ENVOY_START_METRIC
from yarl import URL

from e2e.cluster.ports import free_port
from tests.integration.gateway.binomial import binomial_bounds
from tests.integration.gateway.gateway_lab import LIMIT_BYTES, Gateway, Pods, until
from tests.integration.gateway.scripted_cluster import endpoint_slice, inference_service

HTTP, GRPC = free_port(), free_port()


async def churn(gateway: Gateway, pods: Pods, **spec: Any) -> None:
    """risk/churn with one pod that speaks both protocols."""
    await pods.http("churn-r1", "127.0.0.2", HTTP)
    await pods.grpc("churn-r1", "127.0.0.2", GRPC)
    gateway.cluster.put(
        inference_service("risk", "churn", {"churn-r1": 100}, **spec),
        endpoint_slice("risk", "churn", "churn-r1", [("127.0.0.2", "ready")], {"http": HTTP, "grpc": GRPC}),
    )
    await gateway.until_applied("risk/churn", 1)


async def test_every_form_of_its_names_answers_by_both_protocols_and_no_other_name(
    gateway: Gateway, pods: Pods
) -> None:
    await churn(gateway, pods, hosts=["churn.example.com"])
    names = ["churn.risk", "churn.risk.svc", "churn.risk.svc.cluster.local", "churn.example.com"]
    forms = [
        form for name in names for form in (name, f"{name}:8080", f"{name}.", name.upper(), f"{name}.:80")
    ]
    answers = {form: (await gateway.call(form))[0] for form in forms}
    assert answers == dict.fromkeys(forms, 200)
    assert await gateway.say("churn.risk.svc:80") == b"churn-r1"
    assert (await gateway.call("churn.risk.svc"))[1]["version"] == "1.1"
    await unknown_hosts_are_told_which_names_work(gateway)


async def unknown_hosts_are_told_which_names_work(gateway: Gateway) -> None:
    for host in ("churn", "churn.other", "127.0.0.1:8080", "churn.risk.svc.cluster.local.evil.com"):
        status, body, headers = await gateway.call(host, "/v2/models/churn/infer")
        assert (status, headers["content-type"]) == (421, "application/json"), host
        assert body["error"].startswith(f"no InferenceService answers to host '{host}': use NAME.NAMESPACE")
        assert "a bare NAME carries no namespace" in body["error"]
    with pytest.raises(grpc.aio.AioRpcError) as refusal:
        await gateway.say("churn")
    assert refusal.value.code() is grpc.StatusCode.UNKNOWN
    assert "use NAME.NAMESPACE" in str(refusal.value.details())


async def test_a_body_over_the_limit_is_told_the_limit(gateway: Gateway, pods: Pods) -> None:
    await churn(gateway, pods)
    status, body, _ = await gateway.call("churn.risk", method="POST", data=b"x" * LIMIT_BYTES)
    assert (status, body["bytes"]) == (200, LIMIT_BYTES)
    status, body, _ = await gateway.call("churn.risk", method="POST", data=b"x" * (LIMIT_BYTES + 1))
    assert status == 413
    assert f"larger than {LIMIT_BYTES} bytes" in body["error"]

    async def chunks() -> Any:
        for _ in range(20):
            yield b"x" * 10_000

    status, body, _ = await gateway.call("churn.risk", method="POST", data=chunks())
    assert (status, "larger than" in body["error"]) == (413, True)


UNABLE = {
    "new": ([inference_service("risk", "new", None)], "has no serving pod yet"),
    "stopped": ([inference_service("risk", "stopped", None, stopped=True)], "is stopped: set spec.stopped"),
    "no-slice": ([inference_service("risk", "no-slice", {"no-slice-r1": 100})], "has no pod that is ready"),
    "starting": (
        [
            inference_service("risk", "starting", {"starting-r1": 100}),
            endpoint_slice(
                "risk", "starting", "starting-r1", [("127.0.0.2", "starting")], {"http": 1, "grpc": 2}
            ),
        ],
        "has no pod that is ready",
    ),
    "unheard": (
        [
            inference_service("risk", "unheard", {"unheard-r1": 100}),
            endpoint_slice("risk", "unheard", "unheard-r1", [("127.0.0.2", "ready")], {"http": 1, "grpc": 1}),
        ],
        "could be reached",
    ),
    "rejected": (
        [inference_service("risk", "rejected", {"rejected-r1": 7})],
        "is refused: see its conditions",
    ),
}
"""Services that are known and cannot serve, by name, and what is said of each."""


async def test_a_known_service_that_cannot_serve_says_why(gateway: Gateway) -> None:
    for objects, _ in UNABLE.values():
        gateway.cluster.put(*objects)
    await gateway.until_ready()
    for name, (_, text) in UNABLE.items():
        host = f"{name}.risk.svc"

        async def known(host: str = host) -> bool:
            return (await gateway.call(host))[0] == 503

        await until(f"{name} is known", known)
        _, body, headers = await gateway.call(host)
        assert f"InferenceService risk/{name}" in body["error"]
        assert text in body["error"]
        assert int(headers["retry-after"]) > 0, name
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            await gateway.say(host)
        assert refusal.value.code() is grpc.StatusCode.UNAVAILABLE, name
        assert text in str(refusal.value.details())


async def test_without_a_grpc_port_a_grpc_call_is_unimplemented(gateway: Gateway, pods: Pods) -> None:
    await pods.http("r1", "127.0.0.2", HTTP)
    gateway.cluster.put(
        inference_service("risk", "churn", {"r1": 100}),
        endpoint_slice("risk", "churn", "r1", [("127.0.0.2", "ready")], {"http": HTTP}),
    )
    await gateway.until_applied("risk/churn", 1)
    with pytest.raises(grpc.aio.AioRpcError) as refusal:
        await gateway.say("churn.risk")
    assert refusal.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert "no port named grpc" in str(refusal.value.details())


async def test_the_timeout_is_the_services_own(gateway: Gateway, pods: Pods) -> None:
    await churn(gateway, pods, timeout="200ms")
    status, body, _ = await gateway.call("churn.risk", "/?sleep=5")
    assert status == 504
    assert "did not answer within 0.2s" in body["error"]
    for seconds in (None, 5.0):
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            await gateway.say("churn.risk", b"5", seconds=seconds)
        assert refusal.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_headers(gateway: Gateway, pods: Pods) -> None:
    await churn(gateway, pods, timeout="2s")
    sent = {
        "x-request-id": "mine",
        "x-envoy-upstream-rq-timeout-ms": "5",
        "x-envoy-retry-on": "5xx",
        "x-envoy-original-path": "/admin",
        "x-tailbound-host": "fraud.risk",
        "x-large": "x" * 5_000,
    }
    for extra in ({}, {"x-forwarded-for": "10.9.8.7"}):
        status, body, headers = await gateway.call(
            "Churn.risk.svc:8080", "/?sleep=0.1", headers={**sent, **extra}
        )
        got = body["headers"]
        assert status == 200
        assert (got["host"], got["x-request-id"]) == ("Churn.risk.svc:8080", "mine")
        assert headers["x-request-id"] == "mine"
        assert [name for name in got if name.startswith(("x-envoy", "x-tailbound"))] == []
        assert [name for name in headers if name.startswith(("x-envoy", "x-tailbound"))] == []
        hops = got["x-forwarded-for"].split(",")
        assert hops[:-1] == list(extra.values())
        assert len(hops) == len(extra) + 1


async def test_weights(gateway: Gateway, pods: Pods) -> None:
    await pods.http("r1", "127.0.0.2", HTTP)
    await pods.http("r2", "127.0.0.3", HTTP)
    gateway.cluster.put(
        inference_service("risk", "churn", {"r1": 80, "r2": 20}),
        endpoint_slice("risk", "churn", "r1", [("127.0.0.2", "ready")], {"http": HTTP}),
        endpoint_slice("risk", "churn", "r2", [("127.0.0.3", "ready")], {"http": HTTP}),
    )
    await gateway.until_applied("risk/churn", 1)
    requests = 1000
    seen: Counter[str] = Counter()
    for _ in range(requests):
        seen[(await gateway.call("churn.risk"))[1]["revision"]] += 1
    low, high = binomial_bounds(requests, 0.2)
    assert low <= seen["r2"] <= high


async def test_refused_connections_are_tried_on_another_pod(gateway: Gateway, pods: Pods) -> None:
    await pods.http("r1", "127.0.0.2", HTTP)
    gateway.cluster.put(
        inference_service("risk", "churn", {"r1": 100}),
        endpoint_slice(
            "risk", "churn", "r1", [("127.0.0.2", "ready"), ("127.0.0.9", "ready")], {"http": HTTP}
        ),
    )
    await gateway.until_applied("risk/churn", 1)
    assert [(await gateway.call("churn.risk"))[0] for _ in range(50)] == [200] * 50


async def test_one_request_is_in_the_access_log_and_in_the_metrics(gateway: Gateway, pods: Pods) -> None:
    await churn(gateway, pods)
    await gateway.call("churn.risk", "/v2/models/churn/infer?token=secret", headers={"x-request-id": "mine"})

    async def logged() -> Any:
        return [json.loads(line) for line in gateway.access_log.read_text().splitlines()]

    (line,) = await until("the request is logged", logged)
    expected = {
        "service": "risk/churn",
        "revision": "churn-r1",
        "path": "/v2/models/churn/infer",
        "status": 200,
        "request_id": "mine",
        "pod": f"127.0.0.2:{HTTP}",
    }
    assert {key: line[key] for key in expected} == expected
    assert "secret" not in json.dumps(line)
    await metrics_are_an_allow_list(gateway)
    await metrics_tell_since_when_the_counters_count(gateway)


async def metrics_are_an_allow_list(gateway: Gateway) -> None:
    async with gateway.client.get(f"http://127.0.0.1:{gateway.metrics_port}/metrics") as response:
        text = await response.text()
    families = {line.split(" ")[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert {"tailbound_gateway_services", "envoy_cluster_upstream_rq_total", "envoy_server_live"} <= families
    assert len(families) < 50
    assert 'envoy_cluster_upstream_rq_total{envoy_cluster_name="risk/churn/churn-r1/http"} 1' in text


async def metrics_tell_since_when_the_counters_count(gateway: Gateway) -> None:
    observed = await gateway.observed()
    async with gateway.client.get(f"http://127.0.0.1:{gateway.metrics_port}/metrics") as response:
        lines = (await response.text()).splitlines()
    (start,) = [line.split(" ")[1] for line in lines if line.startswith(f"{ENVOY_START_METRIC} ")]
    assert float(start) == datetime.fromisoformat(observed["envoyStartTime"]).timestamp()
    assert "tailbound_gateway_envoy_up 1" in lines


OIP, CHAT, CUSTOM = "/v2/models/{}/infer", "/v1/chat/completions", "/models/{}/answer"
OTHER = {"model": "other", "messages": [{"content": "x"}]}
# An inference call, and the name for which it is refused; empty if it reaches the pod.
NAMED: dict[str, tuple[str, object, str]] = {
    "own": (OIP.format("churn"), {}, ""),
    "own-version": ("/v2/models/churn/versions/2/infer?x=/v2/models/other/infer", {}, ""),
    "other": (OIP.format("other"), {}, "other"),
    "other-version": ("/v2/models/other/versions/churn/infer", {}, "other"),
    "longer": (OIP.format("churn2"), {}, "churn2"),
    "nothing-but-a-pattern": (OIP.format("%25w+"), {}, "%w+"),
    "no-inference-call": ("/v2/models/other/ready", {}, ""),
    "tensorflow": ("/v1/models/churn/versions/3:predict", {}, ""),
    "tensorflow-other": ("/v1/models/other:predict", {}, "other"),
    "custom": (CUSTOM.format("churn"), {}, ""),
    "custom-other": (CUSTOM.format("other"), {}, "other"),
    "openai": (CHAT, {"model": "churn"}, ""),
    "openai-other": (CHAT, OTHER, "other"),
    "openai-late": (CHAT, {"messages": [{"model": "churn"}], "n": [[1]], "model": "other"}, "other"),
    "openai-inside": (
        CHAT,
        {"metadata": {"model": "other"}, "x": '\\"model": "other', "model": "churn"},
        "",
    ),
    "openai-text": (CHAT, {"x": 'say "model": "other"', "y": "model", "model": "churn"}, ""),
    "openai-no-name": (CHAT, {"messages": []}, ""),
    "openai-number": (CHAT, {"model": 7}, ""),
    "openai-long": (CHAT, {"messages": "x" * 32_000, "model": "other"}, "other"),
    "openai-too-long": (CHAT, {"messages": "x" * 33_000, "model": "other"}, ""),
    "openai-as-long-as-may-be": (CHAT, {"messages": "x" * (LIMIT_BYTES - 40), "model": "other"}, ""),
    "openai-list": (CHAT, ["model", "other"], ""),
}


async def test_a_call_that_names_another_model_is_told_so_and_reaches_no_pod(
    gateway: Gateway, pods: Pods
) -> None:
    await pods.http("churn-r1", "127.0.0.2", HTTP)
    service = inference_service("risk", "churn", {"churn-r1": 100})
    protocols = (ServerProtocol.OIP_REST, ServerProtocol.OPENAI, ServerProtocol.TENSORFLOW_REST)
    service["status"]["inferencePaths"] = [*inference_paths(protocols, ["/models/{model}/answer"])]
    gateway.cluster.put(
        service, endpoint_slice("risk", "churn", "churn-r1", [("127.0.0.2", "ready")], {"http": HTTP})
    )
    await gateway.until_applied("risk/churn", 1)
    for name, (path, body, named) in NAMED.items():
        status, answer, headers = await gateway.call("churn.risk", path, method="POST", json=body)
        assert status == (421 if named else 200), (name, answer)
        if named:
            assert headers["content-type"] == "application/json", name
            said = f"InferenceService risk/churn serves the model 'churn', and this request names '{named}': "
            assert answer["error"].startswith(said), answer
    encoded = URL(f"http://127.0.0.1:{gateway.http_port}/v2/models/%63hurn/infer", encoded=True)
    async with gateway.client.post(encoded, headers={"Host": "churn.risk"}) as response:
        assert response.status == 200
    await bodies_without_a_clear_name_pass(gateway)
    counted = (await gateway.observed("risk/churn"))["services"]["risk/churn"]["counters"]["churn-r1"]
    reached = sum(not named and name != "no-inference-call" for name, (_, _, named) in NAMED.items())
    reached += 1 + len(UNCLEAR)
    assert (counted["good"], counted["failed"]) == (reached, 0)
    await paths_with_a_star_name_no_model(gateway)


UNCLEAR = (b'{"model', b'{"model": "a\\u0062"}', b"", b"]]}{")


async def bodies_without_a_clear_name_pass(gateway: Gateway) -> None:
    odd = b'{"model": "\x00\xff' + b"x" * 200 + b'"}'
    for data, status in ((odd, 421), *((each, 200) for each in UNCLEAR)):
        headers = {"content-type": "application/json"}
        answer = await gateway.call("churn.risk", CHAT, method="POST", data=data, headers=headers)
        assert answer[0] == status, (data, answer)


async def paths_with_a_star_name_no_model(gateway: Gateway) -> None:
    several = inference_service("risk", "several", {"several-r1": 100})
    several["status"]["inferencePaths"] = [
        "/v1/chat/*",
        *inference_paths([ServerProtocol.OPENAI]),
        "/v2/models/**",
    ]
    gateway.cluster.put(
        several, endpoint_slice("risk", "several", "several-r1", [("127.0.0.2", "ready")], {"http": HTTP})
    )
    await gateway.until_applied("risk/several", 1)
    for path, status in ((CHAT, 200), (OIP.format("other"), 200), ("/v1/completions", 421)):
        answer = await gateway.call("several.risk", path, method="POST", json=OTHER)
        assert answer[0] == status, (path, answer)
