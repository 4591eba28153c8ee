"""The chart against a real API server: accepted, under the restricted standard, through a whole life."""

import json
import subprocess
from collections.abc import Iterator

import pytest
import yaml

from e2e.cluster import ControlPlane, binaries
from e2e.cluster.processes import ProcessError, wait_for
from tests.integration.chart.helm import CHART, NAMESPACE, RELEASE, Object, helm, of_kind, template

RESTRICTED = "pod-security.kubernetes.io"
VALUE_SETS: list[tuple[str, ...]] = [
    (),
    ("watchNamespaces={risk,ads}", "crds.keep=false", "aggregateRoles=false"),
    ("operator.replicas=1", "gateway.replicas=1", "gateway.service.type=LoadBalancer"),
    ("image.pullSecrets[0].name=registry", "image.tag=1.2.3", "admission.enabled=false"),
    (
        "gateway.tolerations[0].operator=Exists",
        "gateway.nodeSelector.pool=edge",
        "operator.priorityClassName=high",
    ),
    ("prometheus.enabled=true",),
    ("prometheus.enabled=true", "prometheus.volume.persistent=true", "prometheus.volume.storageClassName=x"),
    ("fetch.allowedHosts={models.svc}", "fetch.deniedCIDRs={10.0.0.0/8}", "defaults.runtimes=false"),
]
CLUSTER_WIDE = {
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
}
SERVICE = {
    "apiVersion": "tailbound.dev/v1alpha1",
    "kind": "InferenceService",
    "metadata": {"name": "churn", "namespace": "risk"},
    "spec": {"model": {"uri": "https://models.example.com/churn.onnx", "format": "onnx", "sha256": "0" * 64}},
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """An API server of its own: Helm wants to own the definitions that other tests install by hand."""
    with ControlPlane.start(tmp_path_factory.mktemp("chart")) as running:
        running.kubectl("create", "namespace", NAMESPACE)
        running.kubectl(
            "label",
            "namespace",
            NAMESPACE,
            f"{RESTRICTED}/enforce=restricted",
            f"{RESTRICTED}/warn=restricted",
        )
        for namespace in ("risk", "ads"):
            running.kubectl("create", "namespace", namespace)
        yield running


def dry_run(cluster: ControlPlane, objects: list[Object]) -> str:
    """Have the API server judge these objects without keeping them; its warnings are returned."""
    for each in objects:
        if each["kind"] not in CLUSTER_WIDE:
            each["metadata"].setdefault("namespace", NAMESPACE)
    result = subprocess.run(
        [
            binaries.program("kubectl"),
            *("--kubeconfig", cluster.kubeconfig),
            *("apply", "--server-side", "--dry-run=server", "--filename", "-"),
        ],
        input=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}),
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert result.returncode == 0, result.stderr
    return result.stderr


def pods_of(objects: list[Object]) -> list[Object]:
    """A pod for each template in these objects: the standard is enforced on pods only."""
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": each["metadata"]["name"],
                "labels": each["spec"]["template"]["metadata"]["labels"],
            },
            "spec": each["spec"]["template"]["spec"],
        }
        for each in of_kind(objects, "Deployment")
    ]


@pytest.mark.parametrize("settings", VALUE_SETS, ids=" ".join)
def test_the_api_server_accepts_every_object_without_a_warning(
    cluster: ControlPlane, settings: tuple[str, ...]
) -> None:
    assert dry_run(cluster, template(*settings)) == ""


def test_every_pod_meets_the_restricted_standard(cluster: ControlPlane) -> None:
    # Priority classes are looked up when a pod is made, so the sets that name one are left out.
    sets = [settings for settings in VALUE_SETS if "priorityClassName" not in " ".join(settings)]
    for settings in sets:
        pods = pods_of(template(*settings))
        assert len(pods) == (3 if "prometheus.enabled=true" in settings else 2)
        assert dry_run(cluster, pods) == ""


def test_a_pod_beyond_the_standard_is_refused_here(cluster: ControlPlane) -> None:
    (pod, _) = pods_of(template())
    pod["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
    with pytest.raises(AssertionError, match="violates PodSecurity"):
        dry_run(cluster, [pod])


def release(cluster: ControlPlane, verb: str, *arguments: str) -> str:
    """Run a helm verb on our release in the cluster."""
    return helm(verb, RELEASE, *arguments, "--namespace", NAMESPACE, "--kubeconfig", cluster.kubeconfig)


def definitions(cluster: ControlPlane) -> list[str]:
    """Names of the installed CustomResourceDefinitions of ours."""
    text = cluster.kubectl("get", "customresourcedefinitions", "--output=name")
    return [name for name in text.split() if name.endswith(".tailbound.dev")]


def serves_our_kinds(cluster: ControlPlane) -> bool:
    """Whether the API server answers for our kinds: it may say 503 for a moment after Established."""
    kinds = ",".join(name.partition("/")[2] for name in definitions(cluster))
    try:
        cluster.kubectl("get", kinds, "--all-namespaces")
    except ProcessError:
        return False
    return True


def test_services_outlive_the_chart_until_the_definitions_go(cluster: ControlPlane) -> None:
    install = ("install", str(CHART), "--set", "image.registry=localhost")
    notes = release(cluster, *install)
    assert "manages inference services in every namespace" in notes
    assert "An InferenceService with one pod does not survive the drain of its node" in notes
    assert "Every InferenceService and its pods are kept (crds.keep is true)" in notes
    cluster.kubectl("wait", "--for=condition=Established", *definitions(cluster), "--timeout=120s")
    wait_for("our kinds are served", lambda: serves_our_kinds(cluster), timeout_seconds=120)
    cluster.kubectl("apply", "--filename", "-", input=json.dumps(SERVICE))
    read_uid = ("get", "inferenceservice", "churn", "--namespace=risk", "--output=jsonpath={.metadata.uid}")
    uid = cluster.kubectl(*read_uid)

    certificate = ("get", "secret", "tailbound-gateway-observed", f"--namespace={NAMESPACE}", "--output=yaml")
    made = yaml.safe_load(cluster.kubectl(*certificate))["data"]
    release(cluster, "upgrade", str(CHART), "--set", "image.registry=localhost,operator.replicas=3")
    assert yaml.safe_load(cluster.kubectl(*certificate))["data"] == made, "an upgrade keeps the certificate"
    replicas = cluster.kubectl(
        "get",
        "deployment",
        "tailbound-operator",
        f"--namespace={NAMESPACE}",
        "--output=jsonpath={.spec.replicas}",
    )
    assert replicas == "3"

    release(cluster, "uninstall")
    left = cluster.kubectl(
        "get", "deployments,services,configmaps,roles", f"--namespace={NAMESPACE}", "--output=name"
    )
    assert "tailbound" not in left
    assert len(definitions(cluster)) == 5

    release(cluster, *install, "--set", "crds.keep=false")
    assert cluster.kubectl(*read_uid) == uid

    release(cluster, "uninstall")
    # A deletion that meets its own change of the status waits for the API server's resync, five minutes.
    wait_for("the definitions are gone", lambda: not definitions(cluster), timeout_seconds=400)


def in_ads(cluster: ControlPlane, verb: str, *arguments: str) -> str:
    """Run a helm verb on a second release, in the namespace ads."""
    return helm(verb, "second", *arguments, "--namespace", "ads", "--kubeconfig", cluster.kubeconfig)


def test_a_second_release_shares_the_definitions_only_if_told_and_takes_over_those_that_the_first_leaves(
    cluster: ControlPlane,
) -> None:
    chart = (str(CHART), "--set", "image.registry=localhost")
    release(cluster, "install", *chart, "--set", "watchNamespaces={risk}")
    second = (*chart, "--set", "watchNamespaces={ads}")
    with pytest.raises(AssertionError, match="exists and cannot be imported into the current release"):
        in_ads(cluster, "install", *second)
    in_ads(cluster, "install", *second, "--set", "crds.enabled=false")
    release(cluster, "uninstall")
    assert len(definitions(cluster)) == 5
    left = cluster.kubectl("get", "clusterroles,validatingadmissionpolicies", "--output=name")
    ours = {name.partition("/")[2] for name in left.split() if "tailbound" in name}
    assert ours, "those of the second release"
    assert all(name.startswith("second-tailbound-") for name in ours)

    with pytest.raises(AssertionError, match="cannot be imported into the current release"):
        in_ads(cluster, "upgrade", *second)
    in_ads(cluster, "upgrade", *second, "--take-ownership")
    kinds = json.loads(cluster.kubectl("get", "customresourcedefinitions", "--output=json"))["items"]
    owners = {
        each["metadata"]["annotations"]["meta.helm.sh/release-name"]
        for each in kinds
        if each["spec"]["group"] == "tailbound.dev"
    }
    assert owners == {"second"}
    in_ads(cluster, "upgrade", *second)
    in_ads(cluster, "uninstall")
