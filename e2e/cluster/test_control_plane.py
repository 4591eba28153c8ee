"""What integration tests take for granted of their API server."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.cluster import ControlPlane
from e2e.cluster.binaries import KUBERNETES_VERSION
from e2e.cluster.processes import ProcessError, wait_for


@pytest.fixture(scope="module")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """etcd and kube-apiserver, without controllers and nodes."""
    with ControlPlane.start(tmp_path_factory.mktemp("control-plane")) as running:
        yield running


def writes(control_plane: ControlPlane, name: str) -> list[tuple[str, str]]:
    events = map(json.loads, control_plane.audit_log.read_text().splitlines())
    return [
        (event["verb"], event["user"]["username"])
        for event in events
        if event.get("objectRef", {}).get("name") == name
    ]


def test_version_is_the_one_named(control_plane: ControlPlane) -> None:
    assert json.loads(control_plane.kubectl("get", "--raw", "/version"))["gitVersion"] == KUBERNETES_VERSION


def test_audit_log_names_the_user_of_each_write_and_no_read(control_plane: ControlPlane) -> None:
    control_plane.kubectl("create", "namespace", "audited")
    control_plane.kubectl("get", "namespace", "audited")
    control_plane.kubectl("label", "namespace", "audited", "seen=yes")
    assert writes(control_plane, "audited") == [("create", "admin"), ("patch", "admin")]


def whoami(control_plane: ControlPlane, kubeconfig: Path) -> str:
    return control_plane.kubectl(
        "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}", f"--kubeconfig={kubeconfig}"
    )


def may_read(control_plane: ControlPlane, kubeconfig: Path) -> bool:
    try:
        control_plane.kubectl("get", "configmaps", f"--kubeconfig={kubeconfig}")
    except ProcessError as error:
        assert 'User "alice" cannot list resource "configmaps"' in str(error)
        return False
    return True


def test_user_may_do_only_what_a_role_gives_the_group(control_plane: ControlPlane) -> None:
    alone = control_plane.kubeconfig_for("alice")
    control_plane.kubectl("create", "clusterrole", "reader", "--verb=list", "--resource=configmaps")
    control_plane.kubectl("create", "clusterrolebinding", "reader", "--clusterrole=reader", "--group=readers")
    member = control_plane.kubeconfig_for("alice", "readers")
    assert whoami(control_plane, alone) == whoami(control_plane, member) == "alice"
    wait_for("the role to count", lambda: may_read(control_plane, member), 10)
    assert not may_read(control_plane, alone)


def test_service_account_authenticates_with_a_token(control_plane: ControlPlane) -> None:
    control_plane.kubectl("create", "serviceaccount", "robot", "-n", "default")
    kubeconfig = control_plane.kubeconfig_for_service_account("default", "robot")
    assert whoami(control_plane, kubeconfig) == "system:serviceaccount:default:robot"


def test_second_control_plane_runs_beside_with_controllers_and_survives_an_outage(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    with ControlPlane.start(tmp_path, controller_manager=True) as other:
        assert other.server != control_plane.server
        other.kubectl("create", "namespace", "short-lived")
        wait_for(
            "default ServiceAccount",
            lambda: "default" in other.kubectl("get", "serviceaccounts", "-n", "short-lived", "-o", "name"),
            30,
        )
        other.stop_apiserver()
        with pytest.raises(ProcessError):
            other.kubectl("get", "namespaces")
        other.start_apiserver()
        other.kubectl("delete", "namespace", "short-lived", "--wait", "--timeout=120s")
