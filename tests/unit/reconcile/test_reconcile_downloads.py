"""A download in the conditions: whom to ask, what is said, and that no rollout is late for it."""

from datetime import timedelta

from tailbound.objects.download import DownloadProgress
from tailbound.reconcile.model import DownloadRequest

from tests.support.simulated.objects import service
from tests.support.simulated.simulator import Simulator

HALF = DownloadProgress(5 * 10**9, 10**10, 10**8)


def downloading() -> Simulator:
    simulator = Simulator(service=service())
    simulator.reconcile()
    simulator.run_controllers()
    for number, name in enumerate(simulator.pods):
        simulator.pods[name] = {
            **simulator.pods[name],
            "status": {
                "phase": "Pending",
                "podIP": f"10.0.0.{number + 1}",
                "initContainerStatuses": [{"name": "fetch", "state": {"running": {}}}],
            },
        }
    return simulator


def test_conditions_say_how_far_a_download_is_and_nothing_is_written_until_there_is_news() -> None:
    simulator = downloading()
    plan = simulator.reconcile()
    (revision,) = simulator.names("ControllerRevision")
    assert plan.download == DownloadRequest(revision, ("http://10.0.0.1:8079/",))
    simulator.downloads = {revision: HALF}
    simulator.reconcile()
    for kind in ("Ready", "ModelVerified"):
        assert simulator.condition(kind) == ("Unknown", "Fetching")
        assert simulator.message(kind).endswith(": 5 GB of 10 GB (50 %), 100 MB/s, about 50s left")
    assert simulator.reconcile().status is None


def test_after_an_edit_nothing_is_said_of_the_download_before() -> None:
    simulator = downloading()
    simulator.downloads = dict.fromkeys(simulator.names("ControllerRevision"), HALF)
    simulator.service = service(env=[{"name": "LEVEL", "value": "2"}], generation=2)
    simulator.reconcile()
    for kind in ("Ready", "ModelVerified"):
        assert "5 GB" not in simulator.message(kind)


def test_a_rollout_is_not_late_while_its_pods_download() -> None:
    simulator = downloading()
    simulator.reconcile()
    simulator.now += timedelta(hours=3)
    simulator.downloads = dict.fromkeys(simulator.names("ControllerRevision"), HALF)
    simulator.reconcile()
    assert simulator.condition("Promoted")[0] == "Unknown"
    assert simulator.rollout["state"] != "RolledBack"


def test_nobody_is_asked_once_a_pod_has_the_model() -> None:
    simulator = downloading()
    simulator.settle()
    assert simulator.plan().download is None
