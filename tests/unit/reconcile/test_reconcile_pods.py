"""What pods are stuck at, read as the kubelet and the scheduler write it."""

import json
from typing import Any

import pytest
from tailbound.api.conditions import Reason
from tailbound.api.runtime_contract import SOURCE_VOLUME, TerminationReason
from tailbound.objects.deployment import Deployment
from tailbound.objects.pod import Pod
from tailbound.reconcile.pods import PodsReport, report

from tests.support.simulated.objects import ready_status


def reported(pods: list[dict[str, Any]], deployment: dict[str, Any] | None) -> PodsReport:
    return report([Pod(each) for each in pods], Deployment(deployment) if deployment is not None else None)


SCHEDULED = {"type": "PodScheduled", "status": "True"}


def pod(name: str = "p1", **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "risk"},
        "status": {"phase": "Pending", "conditions": [SCHEDULED], **status},
    }


def fetch(state: dict[str, Any], last: dict[str, Any] | None = None) -> dict[str, Any]:
    container = {"name": "fetch", "image": "fetch:1", "ready": False, "state": state, "lastState": last or {}}
    return pod(initContainerStatuses=[container])


def server(
    state: dict[str, Any], last: dict[str, Any] | None = None, *, ready: bool = False
) -> dict[str, Any]:
    container = {
        "name": "server",
        "image": "server:1",
        "ready": ready,
        "state": state,
        "lastState": last or {},
    }
    return pod(initContainerStatuses=ready_status()["initContainerStatuses"], containerStatuses=[container])


def ended(message: str = "", code: int = 1, reason: str = "Error") -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason, "message": message}}


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"waiting": {"reason": reason, "message": message}}


def said(reason: str) -> str:
    return json.dumps({"reason": reason, "message": "the file has another digest"})


RUNNING: dict[str, Any] = {"running": {}}
BACK_OFF = waiting("CrashLoopBackOff", "back-off 40s restarting failed container")
MISMATCH = ended(said("DigestMismatch"))
PULL = "failed to resolve image: not found"
UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/1 nodes: no gpu",
}

FINDINGS: dict[str, tuple[dict[str, Any], Reason | None, str]] = {
    "nothing known yet": (pod(conditions=[]), None, ""),
    "fetching": (fetch(RUNNING), None, ""),
    "starting": (server(RUNNING), None, ""),
    "ready": (pod(**ready_status()), None, ""),
    "ready after a crash": (server(RUNNING, ended("x"), ready=True), None, ""),
    "fetch failed": (fetch(MISMATCH), Reason.DIGEST_MISMATCH, "pod p1: the file has another digest"),
    "fetch failed and backs off": (fetch(BACK_OFF, MISMATCH), Reason.DIGEST_MISMATCH, "another digest"),
    "fetch failed and tries again": (fetch(RUNNING, MISMATCH), Reason.DIGEST_MISMATCH, "another digest"),
    "server refused the model": (
        server(BACK_OFF, ended(said("ModelLoadFailed"))),
        Reason.MODEL_LOAD_FAILED,
        "digest",
    ),
    "server whose device failed": (
        server(RUNNING, ended(said("ModelBroken"))),
        Reason.MODEL_BROKEN,
        "pod p1",
    ),
    "server out of memory": (
        server(BACK_OFF, ended("", 137, "OOMKilled")),
        Reason.OUT_OF_MEMORY,
        "spec.resources.memory",
    ),
    "fetch out of memory": (fetch(ended("", 137, "OOMKilled")), Reason.OUT_OF_MEMORY, "container fetch"),
    "image missing": (server(waiting("ErrImagePull", PULL)), Reason.IMAGE_PULL_FAILED, PULL),
    "image missing and backs off": (
        server(waiting("ImagePullBackOff", f'Back-off pulling image "server:1": ErrImagePull: {PULL}')),
        Reason.IMAGE_PULL_FAILED,
        PULL,
    ),
    "image never pulled": (
        server(waiting("ErrImageNeverPull", "not present")),
        Reason.IMAGE_PULL_FAILED,
        "not present. What to do: correct the image in the runtime",
    ),
    "image of fetch": (
        fetch(waiting("ErrImagePull", PULL)),
        Reason.IMAGE_PULL_FAILED,
        "What to do: correct image of the chart",
    ),
    "no container": (
        server(waiting("CreateContainerConfigError", "image will run as root")),
        Reason.CRASH_LOOP,
        "image will run as root",
    ),
    "no secret": (
        server(waiting("CreateContainerConfigError", 'secret "creds" not found')),
        Reason.CRASH_LOOP,
        '"creds" not found. What to do: create it, or correct spec.env',
    ),
    "crashed": (server(ended("Traceback: boom", 3)), Reason.CRASH_LOOP, "exit code 3: Traceback: boom"),
    "crashed and backs off": (server(BACK_OFF, ended("boom", 3)), Reason.CRASH_LOOP, "exit code 3: boom"),
    "crashed without a word": (server(ended("", 139)), Reason.CRASH_LOOP, "wrote no termination message"),
    "ended as if it were done": (server(ended("", 0, "Completed")), Reason.CRASH_LOOP, "exit code 0"),
    "no JSON of ours": (server(ended('{"reason": "Other"}')), Reason.CRASH_LOOP, "Other"),
    "no node": (
        pod(conditions=[UNSCHEDULABLE]),
        Reason.UNSCHEDULABLE,
        "pod p1 has no node: 0/1 nodes: no gpu",
    ),
    "failed": (pod(phase="Failed", conditions=[UNSCHEDULABLE]), Reason.POD_FAILED, "no reason is given"),
}


@pytest.mark.parametrize(("found", "reason", "words"), FINDINGS.values(), ids=FINDINGS)
def test_finding_of_one_pod(found: dict[str, Any], reason: Reason | None, words: str) -> None:
    obstacle = reported([found], None).obstacle
    assert (obstacle.reason if obstacle is not None else None) == reason
    assert words in (obstacle.message if obstacle is not None else "")


def test_the_sentence_does_not_change_while_the_kubelet_tries_again() -> None:
    rounds = [fetch(MISMATCH), fetch(BACK_OFF, MISMATCH), fetch(RUNNING, MISMATCH)]
    assert len({reported([found], None).obstacle for found in rounds}) == 1
    pulls = [FINDINGS["image missing"][0], FINDINGS["image missing and backs off"][0]]
    assert len({reported([found], None).obstacle for found in pulls}) == 1


@pytest.mark.parametrize("reason", [r for r in TerminationReason if r is not TerminationReason.FETCHED])
def test_every_word_of_a_container_is_a_reason(reason: TerminationReason) -> None:
    obstacle = reported([fetch(ended(said(reason)))], None).obstacle
    assert obstacle is not None
    assert obstacle.reason == reason.value


def test_what_a_container_says_itself_goes_first() -> None:
    crashed, mismatch = server(ended("boom")), fetch(MISMATCH)
    crashed["metadata"]["name"], mismatch["metadata"]["name"] = "a", "b"
    seen = reported([crashed, mismatch], None)
    assert [finding.reason for finding in seen.findings] == [Reason.DIGEST_MISMATCH, Reason.CRASH_LOOP]


def test_a_long_message_is_cut_to_its_end() -> None:
    obstacle = reported([server(ended("x" * 4000 + " ValueError: the cause"))], None).obstacle
    assert obstacle is not None
    assert obstacle.message.endswith("ValueError: the cause")
    assert len(obstacle.message) < 800


def test_refused_pods_are_told_by_the_deployment() -> None:
    condition = {
        "type": "ReplicaFailure",
        "status": "True",
        "reason": "FailedCreate",
        "message": "exceeded quota: gpu",
    }
    wanted = {"spec": {"replicas": 3}}
    seen = reported([pod(**ready_status())], {**wanted, "status": {"conditions": [condition]}})
    assert seen.obstacle is not None
    assert (seen.obstacle.reason, seen.obstacle.message, seen.refused) == (
        Reason.QUOTA_EXCEEDED,
        "the API server refuses to create pods: exceeded quota: gpu",
        2,
    )
    admitted = reported([], {**wanted, "status": {"conditions": [condition | {"status": "False"}]}})
    assert (admitted.obstacle, admitted.refused) == (None, 0)


GET = {"readinessProbe": {"httpGet": {"path": "/v2/health/ready", "port": "http"}}}
PROBED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "readiness": (GET, {"started": True}, "its readiness probe (GET /v2/health/ready on port http)"),
    "startup": (
        {**GET, "startupProbe": {"tcpSocket": {"port": 9000}}},
        {"started": False},
        "its startup probe (tcpSocket on port 9000)",
    ),
    "after-the-startup": (
        {**GET, "startupProbe": {"grpc": {"port": 9000}}},
        {"started": True},
        "its readiness probe (GET /v2/health/ready on port http)",
    ),
    "a-command": (
        {"readinessProbe": {"exec": {"command": ["check", "-v"]}}},
        {},
        "its readiness probe (check -v)",
    ),
    "none": ({}, {}, ""),
}


@pytest.mark.parametrize(("spec", "status", "words"), PROBED.values(), ids=PROBED)
def test_the_probe_that_fails_is_named(spec: dict[str, Any], status: dict[str, Any], words: str) -> None:
    running = server(RUNNING)
    running["spec"] = {"containers": [{"name": "server", **spec}]}
    running["status"]["containerStatuses"][0] |= status
    seen = reported([running], None)
    assert seen.obstacle is None
    if words:
        assert seen.unready == (
            f"container server of pod p1 runs, and {words} fails; "
            "kubectl describe pod p1 -n risk shows its answers"
        )
    else:
        assert seen.unready == ""


SIDECAR = {"restartPolicy": "Always", "startupProbe": {"tcpSocket": {"port": 9000}}}
DONE = {"ready": True, "state": ended("", 0)}
INITS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "one-that-goes-on": (
        {},
        {"state": RUNNING},
        "init container mine of pod p1 goes on, and the server starts when it has ended; kubectl logs p1 -c "
        "mine -n risk shows what it does. One that is to go on beside the server needs restartPolicy Always",
    ),
    "sidecar-that-does-not-start": (
        SIDECAR,
        {"state": RUNNING, "started": False},
        "sidecar mine of pod p1 runs, and its startup probe (tcpSocket on port 9000) fails, for which the "
        "server waits; kubectl describe pod p1 -n risk shows its answers",
    ),
    "sidecar-that-has-started": (SIDECAR, {"state": RUNNING, "started": True}, ""),
    "one-that-has-ended": ({}, DONE, ""),
    "one-that-waits": ({}, {"state": BACK_OFF}, ""),
}


@pytest.mark.parametrize(("spec", "status", "words"), INITS.values(), ids=INITS)
def test_the_init_container_that_holds_up_the_server_is_named(
    spec: dict[str, Any], status: dict[str, Any], words: str
) -> None:
    fetched = {"name": "fetch", "image": "fetch:1", **DONE}
    waits = pod(
        initContainerStatuses=[fetched, {"name": "mine", "image": "m:1", "ready": False, **status}],
        containerStatuses=[],
    )
    waits["spec"] = {"initContainers": [{"name": "fetch"}, {"name": "mine", **spec}], "containers": []}
    assert reported([waits], None).unready == words
    fetching = fetch(RUNNING)
    fetching["spec"] = {"initContainers": [{"name": "fetch"}]}
    assert reported([fetching], None).unready == ""


def test_a_container_that_waits_fails_no_probe() -> None:
    waits = server(waiting("CrashLoopBackOff"))
    waits["spec"] = {"containers": [{"name": "server", **GET}]}
    assert reported([waits], None).unready == ""


def test_counts_of_a_mixed_fleet() -> None:
    fetching, done, nowhere = fetch(RUNNING), pod(**ready_status()), pod(conditions=[UNSCHEDULABLE])
    seen = reported([fetching, done, nowhere], {"status": {}})
    assert (seen.count, seen.scheduled, seen.fetched, seen.fetching) == (3, 2, True, True)
    retrying = reported([fetch(RUNNING, MISMATCH)], None)
    assert (retrying.fetched, retrying.fetching) == (False, False)


IMAGE = f"registry.example.com/models/churn@sha256:{'4' * 64}"
PULLS = {
    "absent": (
        "rpc error: failed to resolve image: {}: not found",
        Reason.SOURCE_NOT_FOUND,
    ),
    "private": (
        "pull access denied, {} does not exist: 401 Unauthorized",
        Reason.SOURCE_FORBIDDEN,
    ),
    "unreachable": (
        'failed to do request: Head "{}": dial tcp: i/o timeout',
        Reason.SOURCE_UNREACHABLE,
    ),
    "unknown": ("{}: MANIFEST_UNKNOWN: manifest unknown", Reason.SOURCE_NOT_FOUND),
    "certificate": (
        "{}: tls: failed to verify certificate: x509: certificate signed by unknown authority",
        Reason.SOURCE_UNREACHABLE,
    ),
    "of-the-container": ("failed to resolve image fetch:1: not found", Reason.IMAGE_PULL_FAILED),
}


@pytest.mark.parametrize(("words", "reason"), PULLS.values(), ids=PULLS)
def test_a_model_that_is_an_image_is_told_from_the_image_of_the_container(words: str, reason: Reason) -> None:
    said = words.format(IMAGE)
    volumes = [{"name": SOURCE_VOLUME, "image": {"reference": IMAGE}}]
    found = []
    for state in (
        waiting("ErrImagePull", said),
        waiting("ImagePullBackOff", f'Back-off pulling image "{IMAGE}": ErrImagePull: {said}'),
    ):
        if reason is Reason.IMAGE_PULL_FAILED and state["waiting"]["reason"] == "ImagePullBackOff":
            state["waiting"]["message"] = said
        waits = {**fetch(state), "spec": {"volumes": volumes}}
        found.append(reported([waits], None).obstacle)
    first = found[0]
    assert first is not None
    assert first == found[1]
    assert first.reason is reason
    assert (f"image {IMAGE} of spec.model.uri cannot be pulled for pod p1" in first.message) == (
        reason is not Reason.IMAGE_PULL_FAILED
    )
