"""The commands on a real API server, with statuses as the operator writes them."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tailbound.cli.cluster import Cluster
from tailbound.cli.command import main

from e2e.cluster import ControlPlane, binaries
from tests.integration.api.conftest import Api, all_crds
from tests.support.simulated.objects import hardware_class, runtime
from tests.unit.cli.cli_objects import HISTORY, R1, R2, R3, condition, rejected, service

NAMESPACE = "risk"
REVISIONS = f"/apis/apps/v1/namespaces/{NAMESPACE}/controllerrevisions"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def api(control_plane: ControlPlane) -> Api:
    made = Api(control_plane.kubeconfig)
    for crd in all_crds():
        made.install(crd)
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    assert made.request("POST", "/api/v1/namespaces", namespace).code in (201, 409)
    return made


def written(raw: dict[str, Any]) -> dict[str, Any]:
    """The object as a user would create it."""
    metadata = {key: raw["metadata"][key] for key in ("name", "namespace", "annotations")}
    return {**raw, "metadata": metadata}


def set_status(api: Api, raw: dict[str, Any]) -> None:
    """Write this status as the operator would, for the present generation."""
    body = json.loads(json.dumps({"status": raw["status"]}))
    body["status"]["observedGeneration"] = 1
    for each in body["status"]["conditions"]:
        each["observedGeneration"] = 1
    answer = api.patch(written(raw), body, "/status")
    assert answer.code == 200, answer.body


@pytest.fixture
def churn(api: Api) -> Iterator[Api]:
    """The service in the middle of a rollout."""
    raw = service()
    assert api.create(written(raw)).code == 201
    set_status(api, raw)
    for revision in HISTORY:
        assert api.request("POST", REVISIONS, revision).code == 201
    yield api
    api.request("DELETE", f"/apis/tailbound.dev/v1alpha1/namespaces/{NAMESPACE}/inferenceservices/churn")
    api.request("DELETE", REVISIONS)


@pytest.fixture
def run(control_plane: ControlPlane, capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str, namespace: str = NAMESPACE) -> tuple[int, str, str]:
        place = ["-n", namespace] if namespace else []
        code = main([*arguments, "--kubeconfig", str(control_plane.kubeconfig), *place])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def annotations(api: Api) -> dict[str, str]:
    path = f"/apis/tailbound.dev/v1alpha1/namespaces/{NAMESPACE}/inferenceservices/churn"
    found: dict[str, str] = api.request("GET", path).body["metadata"].get("annotations", {})
    return found


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (
            ("status", "churn"),
            ["canary   churn-r3-c   25%        1 of 1", "rollout of churn-r3-c: analysing"],
        ),
        (("status",), ["churn   Unknown   5/5        Unknown    churn-r2-b   churn-r3-c   25%"]),
        (("status", "-A"), ["risk churn Unknown"]),
        (("history", "churn"), ["churn-r2-b (stable)   75%"]),
        (("why", "churn"), ["beyond the SLA: not proven, evidence 2.5 of 5.0"]),
        (("diff", R1, R2), [f"{R1} and {R2} do not differ"]),
    ],
)
def test_what_is_shown(churn: Api, run: Run, arguments: tuple[str, ...], lines: list[str]) -> None:
    code, out, err = run(*arguments)
    assert (code, err) == (0, "")
    # How wide a column is depends on the services that other tests have left in other namespaces.
    said = {text for line in out.splitlines() for text in (line, " ".join(line.split()))}
    assert [line for line in lines if not any(line in text for text in said)] == []


@pytest.mark.parametrize(
    ("arguments", "annotation", "revision"),
    [
        (("promote", "churn"), "tailbound.dev/promote", R3),
        (("abort", "churn"), "tailbound.dev/abort", R3),
        (("pause", "churn"), "tailbound.dev/pause", R3),
        (("rollback", "churn"), "tailbound.dev/rollback-to", R2),
        (("rollback", "churn", "--to", R1), "tailbound.dev/rollback-to", R1),
    ],
)
def test_an_action_is_written(
    churn: Api, run: Run, arguments: tuple[str, ...], annotation: str, revision: str
) -> None:
    code, out, err = run(*arguments)
    assert (code, err) == (0, "")
    assert out.startswith(f"{revision} ")
    assert [(name, value.partition("/")[0]) for name, value in annotations(churn).items()] == [
        (annotation, revision)
    ]


def test_a_pause_ends(churn: Api, run: Run) -> None:
    assert run("pause", "churn")[0] == 0
    assert run("resume", "churn")[0] == 0
    assert annotations(churn) == {"tailbound.dev/pause": ""}


def test_a_rejected_revision_is_tried_again(churn: Api, run: Run) -> None:
    set_status(churn, service(rollout={"state": "RolledBack"}))
    assert run("retry", "churn") == (0, f"{R3} is tried again\n", "")
    assert annotations(churn)["tailbound.dev/retry"].startswith(f"{R3}/")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("resume", "churn"), f"{R3} is not paused"),
        (("refresh",), "give either NAME, or --all"),
        (("refresh", "churn", "--all"), "give either NAME, or --all"),
        (("status", "other"), '"other" not found'),
        (("diff", R1, "churn-r9-z"), '"churn-r9-z" not found'),
        (("promote", "churn", "--context", "none"), "context none is not in the kubeconfig"),
        (("rollback", "churn", "--to", R3), "it cannot be rolled back to"),
    ],
)
def test_what_cannot_be_done_is_told(churn: Api, run: Run, arguments: tuple[str, ...], message: str) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (1, "")
    assert err.startswith("error: ")
    assert message in err
    assert annotations(churn) == {}


def test_one_service_is_made_anew(churn: Api, run: Run) -> None:
    assert run("refresh", "churn") == (
        0,
        "risk/churn gets a new revision from the present runtime, through a rollout\n",
        "",
    )
    assert list(annotations(churn)) == ["tailbound.dev/refresh"]


OUTDATED = condition("RuntimeOutdated", "True", "RuntimeChanged", "the runtime has changed")


@pytest.mark.parametrize(("end", "code"), [("Promoted", 0), ("RolledBack", 2)])
def test_a_fleet_is_made_anew_and_waited_for(
    churn: Api, run: Run, monkeypatch: pytest.MonkeyPatch, end: str, code: int
) -> None:
    """The rollout that it begins ends while it waits."""
    outdated = service(promoted=("True", "Promoted", "done"))
    outdated["status"]["conditions"].append(OUTDATED)
    set_status(churn, outdated)

    def sleep(seconds: float) -> None:
        fresh = json.loads(json.dumps(HISTORY[2]))
        fresh["data"]["spec"] = json.dumps({"refresh": annotations(churn)["tailbound.dev/refresh"]})
        marks = {"tailbound.dev/stable": "true"} if end == "Promoted" else rejected("Slow", "slow")
        fresh["metadata"]["annotations"] = marks
        assert churn.request("DELETE", f"{REVISIONS}/{R3}").code == 200
        assert churn.request("POST", REVISIONS, fresh).code == 201
        told = ("True", end, "done") if end == "Promoted" else ("False", end, "slow")
        set_status(churn, service(promoted=told, rollout={"state": end}))

    monkeypatch.setattr("tailbound.cli.command.time.sleep", sleep)
    found, out, err = run("refresh", "--all")
    assert (found, err) == (code, "")
    first, second, third = out.splitlines()
    assert (first, second) == (
        "1 services are outdated",
        "risk/churn gets a new revision from the present runtime, through a rollout",
    )
    assert third.startswith("risk/churn promoted" if end == "Promoted" else "risk/churn rolled back")


def test_nothing_outdated_is_nothing_to_do(churn: Api, run: Run) -> None:
    assert run("refresh", "--all") == (0, "0 services are outdated\n", "")
    assert annotations(churn) == {}


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder for files; kubectl is in it, and on PATH."""
    (tmp_path / "kubectl").symlink_to(binaries.program("kubectl"))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    return tmp_path


@pytest.fixture
def ingredients(api: Api) -> Iterator[dict[str, Any]]:
    """The fields of a spec that name a runtime and a class which are there."""
    plural = "/apis/tailbound.dev/v1alpha1"
    made = {
        f"{plural}/namespaces/{NAMESPACE}/servingruntimes": {"kind": "ServingRuntime", **runtime("planned")},
        f"{plural}/hardwareclasses": {"kind": "HardwareClass", **hardware_class("planned", default=False)},
    }
    for path, body in made.items():
        answer = api.request("POST", path, {"apiVersion": "tailbound.dev/v1alpha1", **body})
        assert answer.code == 201, answer.body
    yield {"runtime": {"name": "planned"}, "hardware": {"class": ["planned"]}}
    for path in made:
        api.request("DELETE", f"{path}/planned")


def test_a_plan_says_what_kubectl_would_apply_and_does_nothing(
    churn: Api, run: Run, folder: Path, ingredients: dict[str, Any]
) -> None:
    edited, new = written(service()), written(service())
    edited["spec"] = {**edited["spec"], **ingredients, "scaling": {"min": 7}}
    new["metadata"] = {**new["metadata"], "name": "other"}
    file = folder / "services.json"
    file.write_text(json.dumps(edited))
    code, out, err = run("plan", "-f", str(file), "--requests-per-second", "20", namespace="")
    assert (code, err) == (0, ""), "the namespace is that of the file, as for kubectl apply"
    assert out.startswith("risk/churn would be changed\n")
    assert " -> 7" in next(line for line in out.splitlines() if "spec.scaling.min: " in line)
    new["spec"] = {**new["spec"], "runtime": {"name": "none"}}
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [new, edited]}))
    code, out, err = run("plan", "-f", str(file), "--requests-per-second", "20")
    assert (code, err) == (2, ""), "one of the two would not work"
    first, second = out.split("\n\nrisk/churn ")
    assert first.startswith("risk/other would be created\n  it would not work: RuntimeNotFound: spec.runtime")
    assert second.startswith("would be changed\n")
    assert run("status", "other")[0] == 1, "nothing was stored"
    assert annotations(churn) == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "kind not set"),
        ('{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}', "holds no InferenceService"),
    ],
)
def test_a_file_that_cannot_be_planned_is_told(
    churn: Api, run: Run, folder: Path, text: str, message: str
) -> None:
    file = folder / "file.json"
    file.write_text(text)
    code, out, err = run("plan", "-f", str(file))
    assert (code, out) == (1, "")
    assert message in err


def test_status_and_why_say_first_that_no_operator_works(churn: Api, run: Run) -> None:
    # Operators of other tests with the same API server have left theirs, in namespaces of their own.
    for left in churn.request("GET", "/apis/coordination.k8s.io/v1/leases").body["items"]:
        namespace, name = left["metadata"]["namespace"], left["metadata"]["name"]
        if name == "tailbound-operator":
            path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"
            assert churn.request("DELETE", path).code == 200
    lease: dict[str, Any] = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    lease["metadata"] = {"name": "tailbound-operator", "namespace": NAMESPACE}
    lease["spec"] = {"renewTime": "2024-01-01T00:00:00.000000Z", "holderIdentity": "operator-0"}
    assert churn.request("POST", LEASES, lease).code == 201
    commands = (("status", "churn"), ("status",), ("why", "churn"))
    try:
        for command in commands:
            assert run(*command)[1].startswith(
                "no operator of Tailbound works: Lease tailbound-operator of names"
            )
        lease["spec"]["renewTime"] = datetime.now(UTC).isoformat()
        assert churn.request("DELETE", f"{LEASES}/tailbound-operator").code == 200
        assert churn.request("POST", LEASES, lease).code == 201
        assert not any("no operator" in run(*command)[1] for command in commands)
    finally:
        churn.request("DELETE", f"{LEASES}/tailbound-operator")


def test_an_empty_namespace_is_told(churn: Api, run: Run) -> None:
    assert run("status", namespace="default") == (0, "no inference services in namespace default\n", "")


AT_REST = {"state": "Promoted", "revision": R2, "from": R1}


@pytest.mark.parametrize(
    ("raw", "code", "text"),
    [
        (service(promoted=("True", "Promoted", "done"), rollout=AT_REST), 0, "risk/churn promoted: done"),
        (service(rollout={"state": "Paused", "message": "held"}), 3, "risk/churn paused: held"),
    ],
)
def test_waiting_ends_with_its_status(
    churn: Api, run: Run, monkeypatch: pytest.MonkeyPatch, raw: dict[str, Any], code: int, text: str
) -> None:
    """The end comes while somebody waits."""
    looked = threading.Event()

    def sleep(seconds: float) -> None:
        if not looked.is_set():
            looked.set()
            set_status(churn, raw)

    monkeypatch.setattr("tailbound.cli.command.time.sleep", sleep)
    assert run("wait", "churn") == (code, f"{text}\n", "")
    assert looked.is_set()


def test_waiting_has_an_end(churn: Api, run: Run) -> None:
    code, out, err = run("wait", "churn", "--timeout", "0s")
    assert (code, out) == (1, "")
    assert err.startswith(
        "error: risk/churn: the rollout has not ended within 0s.\nrisk/churn: churn-r2-b gets 75% of the"
    )
    assert "churn-r3-c is being judged" in err


def test_a_status_written_in_between_costs_no_action(
    churn: Api, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operator writes every two seconds while it judges."""
    read, writes = Cluster.subject, iter(range(1, 4))

    def subject(cluster: Cluster, namespace: str, name: str) -> Any:
        found = read(cluster, namespace, name)
        for weight in writes:
            set_status(churn, service(rollout={"weight": weight}))
            break
        return found

    monkeypatch.setattr(Cluster, "subject", subject)
    assert run("promote", "churn")[0] == 0
    assert next(writes, None) is None
    assert annotations(churn)["tailbound.dev/promote"].startswith(f"{R3}/")


def test_an_action_is_not_laid_on_another_revision(
    churn: Api, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Cluster.subject

    def subject(cluster: Cluster, namespace: str, name: str) -> Any:
        found = read(cluster, namespace, name)
        set_status(churn, service(rollout={"revision": "churn-r4-d", "weight": 5}))
        return found

    monkeypatch.setattr(Cluster, "subject", subject)
    code, _, err = run("promote", "churn")
    assert (code, err) == (
        1,
        f"error: risk/churn changed from {R3} to churn-r4-d meanwhile: check "
        "kubectl tailbound status churn -n risk, and run the command again\n",
    )
    assert annotations(churn) == {}


def test_wrong_usage_is_not_mistaken_for_a_rollback(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["wait"], ["wait", "churn", "--timeout", "soon"], ["undo", "churn"]):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 1
    assert "'soon' is not a duration" in capsys.readouterr().err


def test_kubectl_finds_the_plugin(churn: Api, control_plane: ControlPlane, tmp_path: Path) -> None:
    plugin = tmp_path / "kubectl-tailbound"
    plugin.write_text(f'#!/bin/sh\nexec {sys.executable} -m tailbound.cli.command "$@"\n')
    plugin.chmod(0o755)
    result = subprocess.run(
        [binaries.program("kubectl"), "tailbound", "status", "churn", "--namespace", NAMESPACE],
        env={
            **os.environ,
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "PYTHONPATH": "operator",
            "KUBECONFIG": str(control_plane.kubeconfig),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert "rollout of churn-r3-c: analysing" in result.stdout
