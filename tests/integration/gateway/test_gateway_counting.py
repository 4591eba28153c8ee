"""Every way in which a request can end, through the real Envoy, and the one class that it is counted in."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import pytest
import pytest_asyncio

from e2e.cluster.ports import free_port
from tests.integration.gateway.gateway_lab import Gateway, gateway_pod, until
from tests.integration.gateway.odd_pods import INFER, OddPods, call_grpc, http1, http2, infer
from tests.integration.gateway.scripted_cluster import endpoint_slice, inference_service

pytestmark = pytest.mark.asyncio(loop_scope="module")

HTTP, GRPC, NOBODY = free_port(), free_port(), free_port()
P99, LATE, TIMEOUT = 0.6, 0.8, 1.6
"""Seconds: the target, what is safely later, and what is given up."""
SPEC: Mapping[str, Any] = {"sla": {"latency": {"p99": "600ms"}}, "timeout": "1600ms"}
BUSY: Mapping[str, Any] = {"busy": {"overload": "shed"}}
EARLY = 0.15
FOREVER = 30.0
LIMIT, LARGE = 2**20, 2**18
"""Bytes of a body: what the gateway takes, and what it passes on as it comes."""

Send: TypeAlias = Callable[[Gateway], Awaitable[object]]


class Case(NamedTuple):
    name: str
    send: Send
    counted: str | None
    """None: in no class."""
    service: str = "churn"


def plain(action: str, service: str = "churn", **more: Any) -> Send:
    return lambda gateway: http1(gateway.http_port, f"{service}.risk", infer(action, service), **more)


def elsewhere(path: str, method: str = "GET") -> Send:
    return lambda gateway: http1(gateway.http_port, "churn.risk", path, method=method)


def stream(action: str, reset_after: float | None = None, **more: Any) -> Send:
    return lambda gateway: http2(
        gateway.http_port, "churn.risk", infer(action), reset_after=reset_after, **more
    )


def rpc(action: str, deadline: float | None = None, service: str = "churn", path: str = INFER) -> Send:
    return lambda gateway: call_grpc(
        gateway.http_port, f"{service}.risk", action, deadline=deadline, path=path
    )


def raw_rpc(action: str, **more: Any) -> Send:
    return lambda gateway: http2(
        gateway.http_port,
        "churn.risk",
        INFER,
        odd=action,
        content_type="application/grpc",
        te="trailers",
        **more,
    )


ANSWERED = [
    Case("fast 200", plain("200"), "good"),
    Case("slow 200", plain(f"200-{LATE}"), "slow"),
    Case("500", plain("500"), "failed"),
    Case("slow 500", plain(f"500-{LATE}"), "failed"),
    Case("503 of the pod's own", plain("503"), "failed"),
    Case("504 of the pod's own is no time-out", plain("504"), "failed"),
    Case("HTTP/2", stream("200"), "good"),
    Case("the pod is told the bound", plain("bound", "busy"), "good", "busy"),
    Case("a client cannot bound", stream("bound", x_tailbound_latency_bound_ms="200"), "failed"),
    Case("refused as it would be late", plain("shed", "busy"), "shed", "busy"),
    Case("refused as it would be late, though it may be", plain("shed"), "failed"),
    Case("503 for another reason", plain("503", "busy"), "failed", "busy"),
]
BROKEN = [
    Case("reset before the response", plain("reset"), "failed"),
    Case("closed before the response", plain("close"), "failed"),
    Case("slow reset", plain(f"reset-{LATE}"), "failed"),
    Case("no HTTP", plain("junk"), "failed"),
    Case("refused connection", plain("200", "refused"), "failed", "refused"),
    Case("empty cluster", plain("200", "empty"), "failed", "empty"),
    Case("truncated after the headers", plain("truncate"), "failed"),
]
TIMED_OUT = [
    Case("timeout before the response", plain(f"200-{TIMEOUT + 1}"), "timed_out"),
    Case("timeout amid the response", plain("stall"), "timed_out"),
]
ABORTED = [
    Case("client gone early", plain(f"200-{LATE}", leave_after=EARLY), "abandoned"),
    Case("client gone late", plain(f"200-{TIMEOUT}", leave_after=LATE), "slow"),
    Case("client gone early amid the response", plain("stall", leave_after=EARLY), "abandoned"),
    Case("client gone late amid the response", plain("stall", leave_after=LATE), "slow"),
    Case("client gone after a 500 was begun", plain("stall500", leave_after=EARLY), "failed"),
    Case("HTTP/2 reset early", stream(f"200-{LATE}", EARLY), "abandoned"),
    Case("HTTP/2 reset late", stream(f"200-{TIMEOUT}", LATE), "slow"),
    Case("HTTP/2 reset early amid the response", stream("stall", EARLY), "abandoned"),
    Case("HTTP/2 reset late amid the response", stream("stall", LATE), "slow"),
    Case("HTTP/2 reset after a 500 was begun", stream("stall500", EARLY), "failed"),
    Case("reset late, before any pod had the request", stream("200", LATE, complete=False), "abandoned"),
]
GRPC_STATUS = [
    *(Case(f"gRPC {code} in trailers", rpc(f"trailers-{code}"), "failed") for code in (2, 4, 13, 14, 15)),
    Case("gRPC 0 in trailers", rpc("trailers-0"), "good"),
    *(Case(f"gRPC {code} in trailers", rpc(f"trailers-{code}"), "other") for code in (1, 3, 5, 7, 8, 12, 16)),
    Case("slow gRPC 0", rpc(f"trailers-0-{LATE}"), "slow"),
    Case("slow gRPC 3", rpc(f"trailers-3-{LATE}"), "other"),
    Case("slow gRPC 13", rpc(f"trailers-13-{LATE}"), "failed"),
    Case("gRPC 13, trailers only", rpc("only-13"), "failed"),
    Case("gRPC 5, trailers only", rpc("only-5"), "other"),
    Case("gRPC 13 in headers", raw_rpc("headers-13"), "failed"),
    Case("gRPC 0 in headers", raw_rpc("headers-0"), "good"),
    Case("gRPC without any status", rpc("mute-0"), "failed"),
    Case("gRPC reset by the pod", rpc("reset-0"), "failed"),
    Case("gRPC to a refused connection", rpc("trailers-0", service="refused"), "failed", "refused"),
]
GRPC_TIME = [
    Case("own deadline, early", raw_rpc(f"trailers-0-{LATE}", grpc_timeout="150m"), "abandoned"),
    Case("own deadline, late", raw_rpc(f"trailers-0-{TIMEOUT}", grpc_timeout="800m"), "slow"),
    Case("own deadline of a real client, early", rpc(f"trailers-0-{LATE}", EARLY), "abandoned"),
    Case("own deadline of a real client, late", rpc(f"trailers-0-{TIMEOUT}", LATE), "slow"),
    Case("a deadline beyond the timeout", raw_rpc("trailers-0-9", grpc_timeout="9S"), "timed_out"),
    Case("no deadline", raw_rpc("trailers-0-9"), "timed_out"),
    Case("gRPC reset early", raw_rpc(f"trailers-0-{LATE}", reset_after=EARLY), "abandoned"),
    Case("gRPC reset late", raw_rpc(f"trailers-0-{TIMEOUT}", reset_after=LATE), "slow"),
    Case("a stream in time", rpc("stream-0-0.1"), "good"),
    Case("a stream whose last message is late", rpc(f"stream-0-{LATE}"), "slow"),
    Case("a stream that ends badly", rpc("stream-13-0.1"), "failed"),
    Case("a stream that does not end", rpc("stream-0-9"), "timed_out"),
]
SLOW_CLIENT = [
    Case("a small body came slowly", plain("200", body=1000, pause=LATE), "good"),
    Case("a large body came slowly", plain("200", body=LARGE, pause=LATE), "good"),
    Case("a slow body, then a late answer", plain(f"200-{LATE}", body=LARGE, pause=LATE), "slow"),
    Case("a slow body, then the timeout", plain(f"200-{TIMEOUT + 1}", body=LARGE, pause=LATE), "timed_out"),
    Case("500 after a slow body", plain("500", body=LARGE, pause=LATE), "abandoned"),
    Case("reset after a slow body", plain("reset", body=LARGE, pause=LATE), "abandoned"),
    Case("shed after a slow body", plain("shed", "busy", body=LARGE, pause=LATE), "abandoned", "busy"),
    Case("500 after a body in no time", plain("500", body=LARGE), "failed"),
    Case("left amid the body", plain("200", body=LARGE, pause=FOREVER, leave_after=LATE), "abandoned"),
    Case("an answer that is read late", stream("200", reads_after=LATE), "good"),
    Case("a long answer that is read late", plain("long", reads_after=LATE), "good"),
    Case("a long answer that is not read", plain("long", reads_after=TIMEOUT + 1), "abandoned"),
    Case("a late long answer", plain(f"long-{LATE}"), "slow"),
    Case("a gRPC message that came slowly", raw_rpc("trailers-0-1.1", pause=1.0), "good"),
    Case("a gRPC message late for the deadline", raw_rpc("trailers-0-9", pause=TIMEOUT - 0.2), "abandoned"),
]
NO_EVIDENCE = [
    *(Case(f"{code}", plain(f"{code}"), "other") for code in (302, 400, 404, 415, 429)),
    Case("slow 400", plain(f"400-{LATE}"), "other"),
    Case("GET of an inference path", elsewhere(infer("200")), "other"),
    Case("GET of metadata", elsewhere("v2/models/churn/200"), "other"),
    Case("late readiness", elsewhere(f"200-{LATE}"), "other"),
    Case("failing readiness", elsewhere("503"), "other"),
    Case("POST elsewhere", elsewhere("500", "POST"), "other"),
    Case("POST to a path that only looks alike", elsewhere("200/infer", "POST"), "other"),
    Case("gRPC readiness", rpc("only-13", path="inference.GRPCInferenceService/ServerReady"), "other"),
    Case("a probe that is reset", elsewhere("reset"), None),
    Case("a probe that takes too long", elsewhere(f"200-{TIMEOUT + 1}"), None),
]
NOT_OURS = [
    Case("unknown host: 421", lambda gateway: gateway.call("nobody.risk"), None),
    Case("body too large: 413", plain("200", body=2 * LIMIT), None),
    Case("stopped: 503", plain("200", "stopped"), None),
    Case("not started: 503", plain("200", "new"), None),
    Case("no gRPC port: 404", rpc("trailers-0", service="plain"), None),
]
CASES = [
    *ANSWERED,
    *BROKEN,
    *TIMED_OUT,
    *ABORTED,
    *GRPC_STATUS,
    *GRPC_TIME,
    *SLOW_CLIENT,
    *NO_EVIDENCE,
    *NOT_OURS,
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    """One gateway with a service for each state of its pods."""
    pods = OddPods()
    await pods.start("127.0.0.2", HTTP, GRPC)
    async with gateway_pod(tmp_path_factory.mktemp("gateway"), limit_bytes=LIMIT) as running:
        both, dead = {"http": HTTP, "grpc": GRPC}, {"http": NOBODY, "grpc": NOBODY}
        for name, ports in (
            ("churn", both),
            ("busy", both),
            ("refused", dead),
            ("plain", {"http": HTTP}),
            ("empty", None),
        ):
            places = [("127.0.0.2", "ready")] if ports else []
            running.cluster.put(
                endpoint_slice("risk", name, f"{name}-r1", places, ports or {"http": HTTP}),
                inference_service("risk", name, {f"{name}-r1": 100}, **SPEC, **BUSY.get(name, {})),
            )
            await running.until_applied(f"risk/{name}", 1)
        running.cluster.put(
            inference_service("risk", "stopped", {}, stopped=True), inference_service("risk", "new", None)
        )
        await running.until_applied("risk/stopped", 1)
        await running.until_applied("risk/new", 0)
        yield running
    await pods.close()


async def counted(gateway: Gateway) -> Counter[tuple[str, str, str]]:
    """All counters by service, revision and class, through /metrics."""
    found: Counter[tuple[str, str, str]] = Counter()
    async with gateway.client.get(f"http://127.0.0.1:{gateway.metrics_port}/metrics") as response:
        for line in (await response.text()).splitlines():
            if line.startswith("tailbound_requests_total{"):
                labels = dict(
                    pair.split("=") for pair in line[line.index("{") + 1 : line.index("}")].split(",")
                )
                assert set(labels) == {"namespace", "service", "revision", "class"}
                name = f"{labels['namespace']}/{labels['service']}".replace('"', "")
                key = (name, labels["revision"].strip('"'), labels["class"].strip('"'))
                found[key] = int(line.rpartition(" ")[2])
    return found


def ended(gateway: Gateway) -> int:
    return len(gateway.access_log.read_text().splitlines())


async def until_ended(gateway: Gateway, count: int) -> None:
    async def check() -> bool:
        return ended(gateway) == count

    await until(f"{count} requests have ended", check)


async def served(gateway: Gateway) -> None:
    """One more good request for risk/churn."""
    lines = ended(gateway)
    await http1(gateway.http_port, "churn.risk", infer("200"))
    await until_ended(gateway, lines + 1)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_each_request_is_in_its_one_class(gateway: Gateway, case: Case) -> None:
    before, lines = await counted(gateway), ended(gateway)
    await case.send(gateway)
    await until_ended(gateway, lines + 1)
    expected = {(f"risk/{case.service}", f"{case.service}-r1", case.counted): 1} if case.counted else {}
    assert dict(await counted(gateway) - before) == expected


@pytest.mark.parametrize("seed", [1, 2])
async def test_under_mixed_load_the_classes_add_up_to_the_requests(gateway: Gateway, seed: int) -> None:
    """Which cases, how many and in which order is drawn; the sum of each class is known all the same."""
    drawn = random.Random(seed).choices([case for case in CASES if case.service == "churn"], k=300)
    before, lines = await counted(gateway), ended(gateway)
    limit = asyncio.Semaphore(24)

    async def send(case: Case) -> None:
        async with limit:
            await case.send(gateway)

    await asyncio.gather(*(send(case) for case in drawn))
    await until_ended(gateway, lines + len(drawn))
    rise = await counted(gateway) - before
    wanted = Counter(case.counted for case in drawn if case.counted)
    assert sum(rise.values()) == sum(wanted.values())
    for name in ("failed", "timed_out"):
        assert rise["risk/churn", "churn-r1", name] == wanted[name]


async def test_an_unusual_spelling_of_the_host_counts_for_the_same_service(gateway: Gateway) -> None:
    before, lines = await counted(gateway), ended(gateway)
    status, _, _ = await gateway.call("CHURN.Risk:80", f"/{infer('200')}", method="POST")
    await until_ended(gateway, lines + 1)
    assert status == 200
    assert dict(await counted(gateway) - before) == {("risk/churn", "churn-r1", "good"): 1}


async def test_a_changed_target_holds_from_the_next_request_on(gateway: Gateway) -> None:
    """The timeout is the bound where there is no target."""
    outcomes = []
    targets: list[Mapping[str, Any]] = [
        {"sla": {"latency": {"p99": "100ms"}}, "timeout": "5s"},
        {"sla": {"latency": {"p99": "3s"}}, "timeout": "5s"},
        {"timeout": "5s"},
    ]
    gateway.cluster.put(
        endpoint_slice("risk", "moving", "moving-r1", [("127.0.0.2", "ready")], {"http": HTTP})
    )
    for generation, spec in enumerate(targets, start=1):
        gateway.cluster.put(
            inference_service("risk", "moving", {"moving-r1": 100}, generation=generation, **spec)
        )
        await gateway.until_applied("risk/moving", 1, generation)
        before, lines = await counted(gateway), ended(gateway)
        await http1(gateway.http_port, "moving.risk", infer("200-0.3", "moving"))
        await until_ended(gateway, lines + 1)
        outcomes += [name for _, _, name in await counted(gateway) - before]
    assert outcomes == ["slow", "good", "good"]


async def test_revisions_are_told_apart_and_ports_are_not(gateway: Gateway) -> None:
    ports = {"http": HTTP, "grpc": GRPC}
    for revision in ("two-r1", "two-r2"):
        gateway.cluster.put(endpoint_slice("risk", "two", revision, [("127.0.0.2", "ready")], ports))
    for generation, revision in enumerate(("two-r1", "two-r2"), start=1):
        gateway.cluster.put(
            inference_service(
                "risk", "two", {"two-r1": 0, "two-r2": 0, revision: 100}, traffic_generation=generation
            )
        )
        await gateway.until_applied("risk/two", generation)
        lines = ended(gateway)
        for _ in range(generation):
            await http1(gateway.http_port, "two.risk", infer("200", "two"))
        await call_grpc(gateway.http_port, "two.risk", "trailers-0")
        await call_grpc(gateway.http_port, "two.risk", "trailers-13")
        await until_ended(gateway, lines + generation + 2)
    nothing = {"good": 0, "slow": 0, "timedOut": 0, "shed": 0, "failed": 0, "abandoned": 0, "other": 0}
    observed = (await gateway.observed("risk/two"))["services"]["risk/two"]
    assert observed["counters"] == {
        "two-r1": {**nothing, "good": 2, "failed": 1},
        "two-r2": {**nothing, "good": 3, "failed": 1},
    }


async def test_a_runtime_of_another_protocol_says_which_calls_count(gateway: Gateway) -> None:
    """The pod answers none of the paths but one, and each that counts is timed out."""
    service = inference_service("risk", "chat", {"chat-r1": 100}, **SPEC)
    service["status"]["inferencePaths"] = ["/v1/*/run", "/open/**"]
    gateway.cluster.put(
        endpoint_slice("risk", "chat", "chat-r1", [("127.0.0.2", "ready")], {"http": HTTP}), service
    )
    await gateway.until_applied("risk/chat", 1)
    before, lines = await counted(gateway), ended(gateway)
    paths = ["v1/a/run?x=/", "open/a/b", infer("200"), "v1/a/b/run", "v1/run"]
    for path in paths:
        await http1(gateway.http_port, "chat.risk", path)
    await until_ended(gateway, lines + len(paths))
    rise = await counted(gateway) - before
    assert rise["risk/chat", "chat-r1", "timed_out"] == 2
    assert rise["risk/chat", "chat-r1", "other"] == 1


async def test_counters_are_told_for_services_that_are_asked_for(gateway: Gateway) -> None:
    await served(gateway)
    everything = (await gateway.observed())["services"]
    assert len(everything) > 3
    assert [name for name, state in everything.items() if state["counters"] is not None] == []
    asked = (await gateway.observed("risk/churn", "risk/new", "risk/nobody"))["services"]
    assert asked["risk/churn"]["counters"]["churn-r1"]["good"] > 0
    assert asked["risk/new"]["counters"] == {}
    assert "risk/nobody" not in asked


async def test_counters_are_those_of_envoy_not_of_its_sidecar(gateway: Gateway) -> None:
    await served(gateway)
    before = await gateway.observed("risk/churn")
    assert before["services"]["risk/churn"]["counters"] != {}
    await gateway.stop_sidecar()
    gateway.start_sidecar()
    await gateway.until_applied("risk/churn", 1)
    after = await gateway.observed("risk/churn")
    assert after["envoyStartTime"] == before["envoyStartTime"]
    assert after["services"]["risk/churn"]["counters"] == before["services"]["risk/churn"]["counters"]


async def test_a_new_envoy_counts_from_zero_and_says_that_it_is_new(gateway: Gateway) -> None:
    await served(gateway)
    before = await gateway.observed("risk/churn")
    assert before["services"]["risk/churn"]["counters"] != {}
    await gateway.kill_envoy()
    await gateway.start_envoy()
    await gateway.until_applied("risk/churn", 1)
    after = await gateway.observed("risk/churn")
    assert after["envoyStartTime"] > before["envoyStartTime"]
    assert after["services"]["risk/churn"]["counters"] == {}
