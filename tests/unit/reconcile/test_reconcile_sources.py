"""A model without a digest: a Job finds it, the revision keeps it, and every pod verifies it."""

import json
from typing import Any

import pytest
from tailbound.api.runtime_contract import Resolution, Termination, TerminationReason
from tailbound.objects.download import DownloadProgress
from tailbound.objects.fields import Object
from tailbound.reconcile.model import DownloadRequest

from tests.support.copies import remembered
from tests.support.simulated.objects import NAME, hardware_class, service, spec
from tests.support.simulated.serving import verbs
from tests.support.simulated.simulator import Simulator

FIRST, SECOND = "a" * 64, "b" * 64
NOT_FOUND = Termination(reason=TerminationReason.SOURCE_NOT_FOUND, message="there is no such file")


@remembered
def unpinned(**fields: Any) -> Simulator:
    model = {name: value for name, value in spec()["model"].items() if name != "sha256"}
    simulator = Simulator(service=service(model=model, **fields))
    simulator.reconcile()
    return simulator


def jobs(simulator: Simulator) -> list[str]:
    return simulator.names("Job")


def ends(simulator: Simulator, exit_code: int, said: Termination) -> None:
    """The container of the newest Job's pod ends."""
    (job,) = simulator.of("Job")
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": job["metadata"]["name"],
        "uid": job["metadata"]["uid"],
        "controller": True,
    }
    ended = {"terminated": {"exitCode": exit_code, "message": said.written()}}
    state = {"state": ended} if exit_code == 0 else {"state": {}, "lastState": ended}
    pod: Object = {
        "metadata": {
            "name": "job-pod",
            "labels": {"tailbound.dev/service": NAME},
            "ownerReferences": [owner],
        },
        "status": {
            "phase": "Succeeded" if exit_code == 0 else "Pending",
            "containerStatuses": [{"name": "fetch", "ready": False, **state}],
        },
    }
    simulator.job_pods = (pod,)


def finds(simulator: Simulator, sha256: str) -> None:
    """The Job finds this digest, and the operator decides on it."""
    ends(simulator, 0, Resolution(TerminationReason.FETCHED, "fetched", sha256=sha256, size_bytes=7))
    simulator.reconcile()


def marked(simulator: Simulator, **status: str) -> None:
    """The Job has this condition."""
    (job,) = simulator.of("Job")
    job["status"] = {"conditions": [{"type": kind, "status": value} for kind, value in status.items()]}


def digests(simulator: Simulator) -> dict[str, str]:
    """What the pods of each revision verify."""
    found = {}
    for stored in simulator.of("ControllerRevision"):
        (fetch,) = json.loads(stored["data"]["template"])["spec"]["initContainers"]
        assert "--resolved" in fetch["args"]
        found[stored["metadata"]["name"]] = fetch["args"][fetch["args"].index("--sha256") + 1]
        assert json.loads(stored["data"]["model"]) == {
            "sha256": found[stored["metadata"]["name"]],
            "sizeBytes": 7,
        }
    return found


def test_a_job_finds_the_digest_before_there_is_a_revision() -> None:
    simulator = unpinned()
    (job,) = simulator.of("Job")
    assert [kind for kind, _ in simulator.objects] == ["Job"]
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert "--resolve" in container["args"] and "--sha256" not in container["args"]
    assert (pod["restartPolicy"], pod["automountServiceAccountToken"]) == ("OnFailure", False)
    assert job["spec"]["activeDeadlineSeconds"] > 0
    assert job["metadata"]["ownerReferences"][0]["name"] == NAME
    for kind in ("Ready", "ModelVerified"):
        assert simulator.condition(kind) == ("Unknown", "Fetching")
        assert "spec.model.sha256 is missing" in simulator.message(kind)
    assert (simulator.reconcile().writes, simulator.reconcile().status) == ((), None)


def test_conditions_say_how_far_the_job_is() -> None:
    simulator = unpinned()
    assert simulator.plan().download is None
    ends(simulator, 1, NOT_FOUND)
    (pod,) = simulator.job_pods
    running = [{"name": "fetch", "ready": True, "state": {"running": {}}}]
    status = {"phase": "Running", "podIP": "10.0.0.9", "containerStatuses": running}
    simulator.job_pods = ({**pod, "status": status},)
    (job,) = jobs(simulator)
    assert simulator.reconcile().download == DownloadRequest(job, ("http://10.0.0.9:8079/",))
    (container,) = simulator.of("Job")[0]["spec"]["template"]["spec"]["containers"]
    assert "--report" in container["args"]
    simulator.downloads = {job: DownloadProgress(5 * 10**9, 10**10, 10**8)}
    simulator.reconcile()
    for kind in ("Ready", "ModelVerified"):
        assert simulator.condition(kind) == ("Unknown", "Fetching")
        assert simulator.message(kind).endswith(": 5 GB of 10 GB (50 %), 100 MB/s, about 50s left")
    finds(simulator, FIRST)
    assert simulator.plan().download is None


def test_a_job_that_cannot_read_the_source_says_why_and_stays() -> None:
    simulator = unpinned()
    ends(simulator, 1, NOT_FOUND)
    simulator.reconcile()
    for kind in ("Ready", "ModelVerified"):
        assert simulator.condition(kind) == ("False", "SourceNotFound")
        assert "there is no such file" in simulator.message(kind)
    assert len(jobs(simulator)) == 1
    assert simulator.reconcile().writes == ()


@pytest.mark.parametrize("end", ["Failed", "Complete"])
def test_a_job_that_ended_without_a_result_is_made_again(end: str) -> None:
    simulator = unpinned()
    marked(simulator, **{end: "True"})
    assert verbs(simulator.reconcile()) == [("Delete", "Job")]
    assert simulator.condition("ModelVerified")[1] == ("SourceUnreachable" if end == "Failed" else "Fetching")
    assert verbs(simulator.reconcile()) == [("Create", "Job")]


def test_the_revision_keeps_the_digest_and_a_refresh_reads_the_source_again_while_it_serves() -> None:
    simulator = unpinned()
    finds(simulator, FIRST)
    assert list(digests(simulator).values()) == [FIRST]
    simulator.settle()
    (old,) = digests(simulator)
    assert jobs(simulator) == []
    assert simulator.condition("Ready") == ("True", "Serving")
    assert simulator.condition("ModelVerified") == ("True", "DigestMatches")
    assert simulator.condition("RuntimeOutdated") == ("False", "UpToDate")
    simulator.annotate(refresh="now")
    simulator.reconcile()
    assert len(jobs(simulator)) == 1
    assert simulator.serving() == [old]
    assert f"{old} serves" in simulator.message("Ready")
    finds(simulator, SECOND)
    assert sorted(digests(simulator).values()) == [FIRST, SECOND]
    assert digests(simulator)[old] == FIRST


def test_an_edit_ends_the_job_of_the_former_spec() -> None:
    simulator = unpinned()
    before = jobs(simulator)
    simulator.edit(env=[{"name": "LEVEL", "value": "2"}])
    simulator.reconcile()
    assert len(jobs(simulator)) == 1
    assert jobs(simulator) != before
    simulator.edit(model=spec()["model"])
    simulator.reconcile()
    assert jobs(simulator) == []


def test_a_stopped_service_has_no_job() -> None:
    simulator = unpinned(stopped=True)
    assert jobs(simulator) == []
    simulator.edit(stopped=False)
    simulator.reconcile()
    assert len(jobs(simulator)) == 1
    simulator.edit(stopped=True)
    simulator.reconcile()
    assert jobs(simulator) == []
    assert simulator.reconcile().writes == ()


def test_a_job_of_somebody_else_is_left_alone() -> None:
    simulator = unpinned()
    (job,) = simulator.of("Job")
    job["metadata"]["ownerReferences"] = [
        {"kind": "CronJob", "name": "nightly", "uid": "u", "controller": True}
    ]
    assert simulator.reconcile().writes == ()
    assert simulator.condition("Stalled") == ("True", "NameConflict")
    assert "CronJob nightly" in simulator.message("Ready")


def test_a_result_is_kept_until_its_revision_is_stored() -> None:
    simulator = unpinned()
    simulator.hardware_classes = {}
    finds(simulator, FIRST)
    assert simulator.condition("Ready") == ("False", "HardwareClassNotFound")
    assert len(jobs(simulator)) == 1


def test_a_source_that_has_changed_is_told() -> None:
    simulator = unpinned()
    finds(simulator, FIRST)
    simulator.run_controllers()
    changed = Termination(reason=TerminationReason.SOURCE_CHANGED, message="it had another digest")
    (pod,) = simulator.pods
    ended = {"terminated": {"exitCode": 1, "message": changed.written()}}
    fetch = {"name": "fetch", "ready": False, "state": {}, "lastState": ended}
    simulator.pods[pod] = {
        **simulator.pods[pod],
        "status": {"phase": "Pending", "initContainerStatuses": [fetch]},
    }
    simulator.reconcile()
    assert simulator.condition("ModelVerified") == ("False", "SourceChanged")


def test_a_model_that_the_job_finds_too_large_makes_no_pod_until_it_fits() -> None:
    simulator = unpinned()
    simulator.service["spec"]["model"]["size"] = {"activations": "12G"}
    devices: dict[str, Any] = {
        "resources": [{"name": "nvidia.com/gpu", "count": 1}],
        "deviceMemory": "40G",
    }
    simulator.hardware_classes = {"cpu": hardware_class(**devices)}
    simulator.reconcile()
    said = Resolution(
        reason=TerminationReason.FETCHED,
        message="fetched",
        sha256=FIRST,
        size_bytes=7,
        weight_bytes=140 * 10**9,
    )
    ends(simulator, 0, said)
    simulator.settle()
    assert simulator.condition("Stalled") == ("True", "ModelTooLarge")
    assert "the model has 140 GB of weights in its files + 12 GB of activations = 152 GB" in (
        simulator.message("Ready")
    )
    assert not simulator.pods
    assert jobs(simulator), "its result is not looked for again"
    simulator.hardware_classes = {"cpu": hardware_class(**{**devices, "deviceMemory": "160G"})}
    simulator.settle()
    assert simulator.condition("Ready") == ("True", "Serving")
    memory = simulator.service["status"]["hardware"]["memory"]
    assert memory.endswith("= 152 GB; in HardwareClass cpu, 1 device of 160G holds 160 GB")
