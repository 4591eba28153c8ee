"""What each process may do: exactly this, and nowhere else than it must."""

import pytest

from tests.integration.chart.helm import NAMESPACE, Object, named, of_kind, template

Grants = set[tuple[str, str, str]]

CLAIMS = ("", "persistentvolumeclaims", "get list watch create patch")
OPERATOR_WATCHED: Grants = {
    ("tailbound.dev", "inferenceservices", "get list watch"),
    ("tailbound.dev", "servingruntimes", "list watch"),
    ("tailbound.dev", "inferenceservices/status", "update"),
    ("tailbound.dev", "inferenceservices/finalizers", "update"),
    ("apps", "controllerrevisions", "get list watch create patch delete"),
    ("apps", "deployments", "get list watch create patch delete"),
    ("", "services", "get list watch create patch delete"),
    ("policy", "poddisruptionbudgets", "get list watch create patch delete"),
    ("batch", "jobs", "get list watch create patch delete"),
    ("resource.k8s.io", "resourceclaimtemplates", "get list watch create patch delete"),
    CLAIMS,
    ("", "pods", "list watch delete"),
    ("discovery.k8s.io", "endpointslices", "list watch"),
    ("", "events", "create"),
}
OPERATOR_OWN: Grants = {
    ("coordination.k8s.io", "leases", "create"),
    ("coordination.k8s.io", "leases", "get update"),
    ("", "pods", "list watch delete"),
}
OPERATOR_CLUSTER: Grants = {
    ("tailbound.dev", "hardwareclasses", "get list watch create patch"),
    ("tailbound.dev", "clusterservingruntimes", "get list watch create patch"),
    ("tailbound.dev", "hardwareclasses/status", "update"),
    ("", "nodes", "list"),
    ("tailbound.dev", "hostgrants", "list watch"),
    ("resource.k8s.io", "deviceclasses", "list watch"),
}
GATEWAY_WATCHED: Grants = {
    ("tailbound.dev", "inferenceservices", "list watch"),
    ("discovery.k8s.io", "endpointslices", "list watch"),
}
GATEWAY_CLUSTER: Grants = {("authentication.k8s.io", "tokenreviews", "create")}


def grants(objects: list[Object], account: str) -> dict[str, Grants]:
    """What a ServiceAccount of ours may do, by namespace; "" is cluster-wide."""
    found: dict[str, Grants] = {}
    for binding in [*of_kind(objects, "ClusterRoleBinding"), *of_kind(objects, "RoleBinding")]:
        subject = {"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}
        if subject not in binding["subjects"]:
            continue
        namespace = ""
        if binding["kind"] == "RoleBinding":
            namespace = binding["metadata"].get("namespace", NAMESPACE)
        roles = [
            role
            for role in of_kind(objects, binding["roleRef"]["kind"])
            if role["metadata"]["name"] == binding["roleRef"]["name"]
            and (role["kind"] == "ClusterRole" or role["metadata"].get("namespace", NAMESPACE) == namespace)
        ]
        assert len(roles) == 1
        for rule in roles[0]["rules"]:
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    found.setdefault(namespace, set()).add((group, resource, " ".join(rule["verbs"])))
    return found


@pytest.mark.parametrize(
    ("settings", "operator", "gateway"),
    [
        (
            (),
            {"": OPERATOR_WATCHED | OPERATOR_CLUSTER, NAMESPACE: OPERATOR_OWN},
            {"": GATEWAY_WATCHED | GATEWAY_CLUSTER},
        ),
        (
            ("watchNamespaces={risk,ads}",),
            {
                "": OPERATOR_CLUSTER,
                NAMESPACE: OPERATOR_OWN,
                "risk": OPERATOR_WATCHED,
                "ads": OPERATOR_WATCHED,
            },
            {"": GATEWAY_CLUSTER, "risk": GATEWAY_WATCHED, "ads": GATEWAY_WATCHED},
        ),
        (
            # A policy refuses each deletion.
            ("ownerReferencesEnforced=true",),
            {
                "": OPERATOR_WATCHED - {CLAIMS} | {(*CLAIMS[:2], f"{CLAIMS[2]} delete")} | OPERATOR_CLUSTER,
                NAMESPACE: OPERATOR_OWN,
            },
            {"": GATEWAY_WATCHED | GATEWAY_CLUSTER},
        ),
        (
            (f"watchNamespaces={{{NAMESPACE}}}",),
            {"": OPERATOR_CLUSTER, NAMESPACE: OPERATOR_OWN | OPERATOR_WATCHED},
            {"": GATEWAY_CLUSTER, NAMESPACE: GATEWAY_WATCHED},
        ),
    ],
)
def test_each_process_has_exactly_its_permissions(
    settings: tuple[str, ...], operator: dict[str, Grants], gateway: dict[str, Grants]
) -> None:
    objects = template(*settings)
    assert grants(objects, "tailbound-operator") == operator
    assert grants(objects, "tailbound-gateway") == gateway


def test_prometheus_may_do_nothing() -> None:
    objects = template("prometheus.enabled=true")
    assert grants(objects, "tailbound-prometheus") == {}
    account = named(objects, "ServiceAccount", "tailbound-prometheus")
    assert account["automountServiceAccountToken"] is False


def test_the_lease_is_the_operators_own() -> None:
    rules = named(template(), "Role", "tailbound-operator-own")["rules"]
    held = [rule["resourceNames"] for rule in rules if "get" in rule["verbs"]]
    assert held == [["tailbound-operator"]]


def test_nothing_is_granted_to_anybody_else() -> None:
    for binding in [*of_kind(template(), "ClusterRoleBinding"), *of_kind(template(), "RoleBinding")]:
        assert [subject["name"] for subject in binding["subjects"]] in (
            ["tailbound-operator"],
            ["tailbound-gateway"],
        )


@pytest.mark.parametrize(
    ("role", "joins"), [("tailbound-view", {"view", "edit", "admin"}), ("tailbound-edit", {"edit", "admin"})]
)
def test_users_get_the_kinds_with_the_built_in_roles(role: str, joins: set[str]) -> None:
    labels = named(template(), "ClusterRole", role)["metadata"]["labels"]
    prefix = "rbac.authorization.k8s.io/aggregate-to-"
    assert {name.removeprefix(prefix) for name in labels if name.startswith(prefix)} == joins


def test_viewers_change_nothing() -> None:
    rules = named(template(), "ClusterRole", "tailbound-view")["rules"]
    assert {verb for rule in rules for verb in rule["verbs"]} == {"get", "list", "watch"}


def test_aggregation_can_be_left_out() -> None:
    assert not [
        role
        for role in of_kind(template("aggregateRoles=false"), "ClusterRole")
        if role["metadata"]["name"] in ("tailbound-view", "tailbound-edit")
    ]
