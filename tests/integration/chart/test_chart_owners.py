"""Who may share a cache of models where owner references are enforced, on a real API server that does it."""

import json
from pathlib import Path
from typing import Any

from e2e.cluster import ControlPlane
from e2e.cluster.processes import wait_for
from tests.integration.chart.helm import NAMESPACE, of_kind, template
from tests.integration.chart.test_chart_admission import WAIT_SECONDS, User

KINDS = (
    "ClusterRole",
    "ClusterRoleBinding",
    "ServiceAccount",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
)


def _owned_by(*owners: str) -> list[dict[str, Any]]:
    common = {"apiVersion": "apps/v1", "kind": "ControllerRevision", "blockOwnerDeletion": False}
    return [{**common, "name": owner, "uid": owner} for owner in owners]


def _add(user: User, *owners: str) -> str:
    patch = json.dumps({"metadata": {"ownerReferences": _owned_by(*owners)}})
    return user.kubectl("patch", "pvc", "shared", "--type=merge", f"--patch={patch}")


def _claim(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "ownerReferences": _owned_by("a")},
        "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Mi"}}},
    }


def test_the_operator_adds_owners_to_a_claim_and_deletes_none(tmp_path: Path) -> None:
    plugins = ("OwnerReferencesPermissionEnforcement",)
    with ControlPlane.start(tmp_path, admission_plugins=plugins) as plane:
        for namespace in (NAMESPACE, "risk"):
            plane.kubectl("create", "namespace", namespace)
        objects = template("ownerReferencesEnforced=true")
        chosen = [each for kind in KINDS for each in of_kind(objects, kind)]
        items = {"apiVersion": "v1", "kind": "List", "items": chosen}
        plane.kubectl("apply", "--namespace", NAMESPACE, "--filename=-", input=json.dumps(items))
        account = plane.kubeconfig_for_service_account(NAMESPACE, "tailbound-operator")
        operator, sharer = User("operator", account), User("sharer", plane.kubeconfig_for("sharer"))
        role = ("create", "role", "sharer", "--namespace=risk", "--resource=persistentvolumeclaims")
        plane.kubectl(*role, "--verb=get,list,watch,create,patch")
        plane.kubectl("create", "rolebinding", "sharer", "--namespace=risk", "--role=sharer", "--user=sharer")

        assert "created" in operator.kubectl("create", "--filename=-", document=_claim("shared"))
        assert "cannot set an ownerRef on a resource you can't delete" in _add(sharer, "a", "b")
        assert "patched" in _add(operator, "a", "b")

        def refused() -> bool:
            # A policy comes into force a little after it was written; a trial deletes nothing.
            said = operator.kubectl("delete", "pvc", "shared", "--wait=false", "--dry-run=server")
            return "deletes no PersistentVolumeClaims" in said

        wait_for("the policy of claims", refused, WAIT_SECONDS)
        assert "Forbidden" in operator.kubectl("delete", "pvc", "shared", "--wait=false")
        assert "shared" in plane.kubectl("get", "pvc", "--namespace=risk")
