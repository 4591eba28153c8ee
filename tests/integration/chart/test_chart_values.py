"""Values of the chart: what each does, and what a wrong one is answered with."""

from pathlib import Path

import pytest
import yaml
from tailbound.api import names
from tailbound.api.crdgen import stale
from tailbound.api.hardwareclass import HardwareClass
from tailbound.api.names import DEFAULT_CLASS_ANNOTATION
from tailbound.api.servingruntime import ClusterServingRuntime
from tailbound.controller.defaults import load_defaults
from tailbound_runtime.engines import KINDS

from tests.integration.chart.helm import (
    CHART,
    NAMESPACE,
    ROOT,
    HelmError,
    Object,
    containers,
    documents,
    env_of,
    helm,
    named,
    of_kind,
    pod_of,
    template,
)

DIGEST = "sha256:" + "0" * 64


def default_objects(objects: list[Object]) -> list[Object]:
    """What the operator creates at its start."""
    data = named(objects, "ConfigMap", "tailbound-defaults").get("data") or {}
    return [yaml.safe_load(text) for text in data.values()]


def test_lint_finds_nothing_to_warn_about() -> None:
    assert "[WARNING]" not in helm("lint", CHART, "--strict", "--set", "image.registry=localhost")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("colour=blue", "at '': additional properties 'colour' not allowed"),
        ("operator.replica=1", "at '/operator': additional properties 'replica' not allowed"),
        ("operator.replicas=-1", "at '/operator/replicas': minimum: got -1, want 0"),
        ("operator.replicas=two", "at '/operator/replicas': got string, want integer"),
        ("gateway.maxRequestBytes=1", "at '/gateway/maxRequestBytes': minimum: got 1, want 1,024"),
        (
            "gateway.terminationGracePeriodSeconds=1",
            "at '/gateway/terminationGracePeriodSeconds': minimum: got 1",
        ),
        ("gateway.service.type=Headless", "value must be one of 'ClusterIP', 'NodePort', 'LoadBalancer'"),
        ("image.pullPolicy=never", "value must be one of 'Always', 'IfNotPresent', 'Never'"),
        ("image.tag=a b", "at '/image/tag': 'a b' does not match pattern"),
        ("image.operator.digest=latest", "at '/image/operator/digest': 'latest' does not match pattern"),
        ("image.pullSecrets[0]=registry", "at '/image/pullSecrets/0': got string, want object"),
        ("watchNamespaces=risk", "at '/watchNamespaces': got string, want array"),
        ("watchNamespaces[0]=Risk", "at '/watchNamespaces/0': 'Risk' does not match pattern"),
        ("fetch.deniedCIDRs[0]=10.0.0.0", "at '/fetch/deniedCIDRs/0': '10.0.0.0' does not match pattern"),
        ("fetch.allowedCIDRs[0]=10.0.0.300/8", "at '/fetch/allowedCIDRs/0': '10.0.0.300/8' does not match"),
        ("fetch.allowedCIDRs[0]=fd00::/129", "at '/fetch/allowedCIDRs/0': 'fd00::/129' does not match"),
        ("fetch.allowedHosts[0]=http://models", "at '/fetch/allowedHosts/0': 'http://models' does not match"),
        ("components.userId=0", "at '/components/userId': minimum: got 0, want 1"),
        ("crds.keep=maybe", "at '/crds/keep': got string, want boolean"),
        ("operator.resources.limits.memory=much", "'much' does not match pattern"),
        (
            "gateway.resources.limits.memory=1",
            "gateway.resources.limits.memory is 1: Envoy and its connections",
        ),
        (
            "gateway.resources.limits.memory=65535Ki",
            "limits.memory is 65535Ki: Envoy and its connections need",
        ),
        ("operator.affinity.nodes=x", "at '/operator/affinity': additional properties 'nodes' not allowed"),
        ("gateway.podLabels.app\\.kubernetes\\.io/name=x", "at '/gateway/podLabels/app.kubernetes.io~1name'"),
        ("operator.extraEnv[0].name=TAILBOUND_RELEASE", "at '/operator/extraEnv/0/name': 'not' failed"),
        ("gateway.service.ipFamilyPolicy=Dual", "at '/gateway/service/ipFamilyPolicy': value must be one of"),
        ("image.registry=", "image.registry is empty: set it to the registry that holds the images"),
    ],
)
def test_a_wrong_value_is_refused_by_its_path(setting: str, message: str) -> None:
    with pytest.raises(HelmError) as refused:
        template(setting)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "operator", "runtime"),
    [
        ((), "localhost/tailbound:0.1.0", "localhost/tailbound-runtime:0.1.0"),
        (
            ("image.registry=registry.example.com/platform", "image.tag=1.2.3"),
            "registry.example.com/platform/tailbound:1.2.3",
            "registry.example.com/platform/tailbound-runtime:1.2.3",
        ),
        (
            (f"image.operator.digest={DIGEST}", f"image.runtime.digest={DIGEST}"),
            f"localhost/tailbound@{DIGEST}",
            f"localhost/tailbound-runtime@{DIGEST}",
        ),
    ],
)
def test_every_image_follows_the_image_values(settings: tuple[str, ...], operator: str, runtime: str) -> None:
    objects = template(*settings)
    pods = [
        pod_of(objects, "operator"),
        pod_of(objects, "gateway"),
        named(objects, "Pod", "tailbound-test")["spec"],
    ]
    assert {container["image"] for pod in pods for container in containers(pod)} == {operator}
    assert env_of(pods[0]["containers"][0])["TAILBOUND_FETCH_IMAGE"] == operator
    assert (
        named(default_objects(objects), "ClusterServingRuntime", "onnxruntime")["spec"]["server"]["image"]
        == runtime
    )


def test_pull_secrets_reach_every_pod_and_the_operator() -> None:
    objects = template(
        "image.pullSecrets[0].name=a", "image.pullSecrets[1].name=b", "image.pullPolicy=Always"
    )
    operator = pod_of(objects, "operator")
    for pod in (operator, pod_of(objects, "gateway"), named(objects, "Pod", "tailbound-test")["spec"]):
        assert pod["imagePullSecrets"] == [{"name": "a"}, {"name": "b"}]
        assert {container["imagePullPolicy"] for container in containers(pod)} == {"Always"}
    env = env_of(operator["containers"][0])
    assert env["TAILBOUND_IMAGE_PULL_SECRETS"] == "a,b"
    assert env["TAILBOUND_IMAGE_PULL_POLICY"] == "Always"


def test_lists_reach_the_operator_comma_separated() -> None:
    objects = template(
        "watchNamespaces={risk,ads}",
        "fetch.allowedHosts={models.svc,a.b}",
        "fetch.deniedCIDRs={10.0.0.0/8,fd00::/8}",
        "fetch.allowedCIDRs={192.168.0.0/16}",
        "fetch.timeoutSeconds=7200",
        "fetch.proxy=http://proxy.corp:3128",
    )
    env = env_of(pod_of(objects, "operator")["containers"][0])
    assert env["TAILBOUND_WATCH_NAMESPACES"] == "risk,ads"
    assert env["TAILBOUND_FETCH_ALLOWED_HOSTS"] == "models.svc,a.b"
    assert env["TAILBOUND_FETCH_DENIED_CIDRS"] == "10.0.0.0/8,fd00::/8"
    assert env["TAILBOUND_FETCH_ALLOWED_CIDRS"] == "192.168.0.0/16"
    assert env["TAILBOUND_FETCH_TIMEOUT_SECONDS"] == "7200"
    assert env["TAILBOUND_FETCH_PROXY"] == "http://proxy.corp:3128"


@pytest.mark.parametrize(
    ("component", "setting", "field", "expected"),
    [
        ("operator", "operator.nodeSelector.pool=infra", "nodeSelector", {"pool": "infra"}),
        ("gateway", "gateway.priorityClassName=high", "priorityClassName", "high"),
        ("gateway", "gateway.tolerations[0].operator=Exists", "tolerations", [{"operator": "Exists"}]),
    ],
)
def test_scheduling_values_reach_their_pods_only(
    component: str, setting: str, field: str, expected: object
) -> None:
    objects = template(setting)
    assert pod_of(objects, component)[field] == expected
    other = {"operator": "gateway", "gateway": "operator"}[component]
    assert pod_of(objects, other).get(field) != expected


@pytest.mark.parametrize(("chosen", "user"), [("", 65532), ("components.userId=1000710000", 1000710000)])
def test_every_pod_of_the_chart_has_the_chosen_user(chosen: str, user: int) -> None:
    for pod in own_pods(*filter(None, [chosen])):
        security = pod["securityContext"]
        assert {security[field] for field in ("runAsUser", "runAsGroup", "fsGroup")} == {user}


def test_every_pod_of_the_chart_leaves_its_user_to_the_platform_where_that_is_chosen() -> None:
    for pod in own_pods("components.userId=null"):
        assert pod["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


def own_pods(*settings: str) -> list[Object]:
    """The pod specs of everything that the chart runs."""
    objects = template("prometheus.enabled=true", *settings)
    deployed = [pod_of(objects, component) for component in ("operator", "gateway", "prometheus")]
    return [*deployed, named(objects, "Pod", "tailbound-test")["spec"]]


@pytest.mark.parametrize(("component", "other"), [("operator", "gateway"), ("gateway", "operator")])
def test_options_of_the_pods_reach_the_pods_of_their_part_only(component: str, other: str) -> None:
    affinity = "affinity.nodeAffinity.x=y"
    objects = template(
        *(f"{component}.{setting}" for setting in (affinity, "podLabels.team=ml", "podAnnotations.note=hi")),
        *(f"{component}.extraEnv[0].name=HTTPS_PROXY", f"{component}.extraEnv[0].value=http://p:3128"),
        f"{component}.serviceAccount.annotations.role=reader",
        f"{component}.service.ipFamilyPolicy=PreferDualStack",
    )
    for part, chosen in ((component, True), (other, False)):
        pod = named(objects, "Deployment", f"tailbound-{part}")["spec"]["template"]
        assert (pod["spec"].get("affinity") == {"nodeAffinity": {"x": "y"}}) is chosen
        assert (pod["metadata"]["labels"].get("team") == "ml") is chosen
        assert (pod["metadata"].get("annotations", {}).get("note") == "hi") is chosen
        assert pod["metadata"]["labels"]["app.kubernetes.io/component"] == part
        for container in containers(pod["spec"]):
            assert (env_of(container).get("HTTPS_PROXY") == "http://p:3128") is chosen
        account = named(objects, "ServiceAccount", f"tailbound-{part}")["metadata"]
        assert (account.get("annotations") == {"role": "reader"}) is chosen
        service = named(objects, "Service", f"tailbound-{part}")["spec"]
        assert (service.get("ipFamilyPolicy") == "PreferDualStack") is chosen


@pytest.mark.parametrize(("replicas", "budgets"), [(0, 0), (1, 0), (2, 1)])
@pytest.mark.parametrize("component", ["operator", "gateway"])
def test_a_budget_exists_where_there_is_a_second_pod(component: str, replicas: int, budgets: int) -> None:
    objects = template(f"{component}.replicas={replicas}")
    assert named(objects, "Deployment", f"tailbound-{component}")["spec"]["replicas"] == replicas
    found = [each["metadata"]["name"] for each in of_kind(objects, "PodDisruptionBudget")]
    assert found.count(f"tailbound-{component}") == budgets


def test_large_numbers_stay_whole() -> None:
    objects = template("gateway.maxRequestBytes=4294967295")
    for container in containers(pod_of(objects, "gateway")):
        assert env_of(container)["TAILBOUND_MAX_REQUEST_BYTES"] == "4294967295"


def test_the_gateway_knows_how_long_its_pod_may_take_to_stop() -> None:
    pod = pod_of(template("gateway.terminationGracePeriodSeconds=900"), "gateway")
    assert pod["terminationGracePeriodSeconds"] == 900
    for container in containers(pod):
        assert env_of(container)["TAILBOUND_TERMINATION_GRACE_SECONDS"] == "900"


def test_the_gateway_knows_the_memory_of_the_container_of_its_envoy() -> None:
    for container in containers(pod_of(template(), "gateway")):
        (memory,) = [each for each in container["env"] if each["name"] == "TAILBOUND_MEMORY_BYTES"]
        assert memory["valueFrom"]["resourceFieldRef"] == {
            "containerName": "envoy",
            "resource": "limits.memory",
        }


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ((), {"HardwareClass cpu", "HardwareClass gpu", "ClusterServingRuntime onnxruntime"}),
        (("defaults.runtimes=false",), {"HardwareClass cpu", "HardwareClass gpu"}),
        (("defaults.hardwareClasses=false",), {"ClusterServingRuntime onnxruntime"}),
        (("defaults.hardwareClasses=false", "defaults.runtimes=false"), set()),
        (
            (
                "defaults.hardwareClasses=false",
                "defaults.runtimes=false",
                *(f"engines.{kind.name}.enabled=true" for kind in KINDS[1:]),
            ),
            {f"ClusterServingRuntime tailbound-{kind.name}" for kind in KINDS[1:]},
        ),
    ],
)
def test_defaults_are_valid_objects(settings: tuple[str, ...], expected: set[str]) -> None:
    found = default_objects(template(*settings))
    assert {f"{each['kind']} {each['metadata']['name']}" for each in found} == expected
    # Argo CD prunes what is in no manifest and has the application's name in app.kubernetes.io/instance.
    assert [each for each in found if each["metadata"]["labels"] != {names.RELEASE_LABEL: "tailbound"}] == []
    models: dict[str, type[HardwareClass] | type[ClusterServingRuntime]] = {
        "HardwareClass": HardwareClass,
        "ClusterServingRuntime": ClusterServingRuntime,
    }
    parsed = [models[each["kind"]].model_validate(each) for each in found]
    classes = [each.metadata for each in parsed if isinstance(each, HardwareClass)]
    default = [each.name for each in classes if each.annotations.get(DEFAULT_CLASS_ANNOTATION) == "true"]
    assert default == (["cpu"] if classes else [])


def test_a_change_of_the_defaults_restarts_the_operator() -> None:
    def checksum(*settings: str) -> str:
        deployment = named(template(*settings), "Deployment", "tailbound-operator")
        return str(deployment["spec"]["template"]["metadata"]["annotations"]["checksum/defaults"])

    assert checksum() == checksum() != checksum("defaults.runtimes=false")


def test_the_chart_keeps_the_contract_between_the_processes() -> None:
    objects = template()
    operator, gateway = pod_of(objects, "operator"), pod_of(objects, "gateway")
    ports = {
        port["name"]: port["containerPort"] for pod in (operator,) for port in pod["containers"][0]["ports"]
    }
    assert ports == {"metrics": names.OPERATOR_METRICS_PORT, "health": names.OPERATOR_HEALTH_PORT}
    ports = {
        port["name"]: port["containerPort"] for each in containers(gateway) for port in each.get("ports", [])
    }
    assert ports == {
        "http": names.GATEWAY_HTTP_PORT,
        "observed": names.GATEWAY_OBSERVED_PORT,
        "metrics": names.GATEWAY_METRICS_PORT,
        "health": names.GATEWAY_HEALTH_PORT,
    }
    labels = named(objects, "Deployment", "tailbound-gateway")["spec"]["template"]["metadata"]["labels"]
    assert labels[names.COMPONENT_LABEL] == names.GATEWAY_COMPONENT
    for container in containers(gateway):
        account = env_of(container)["TAILBOUND_OPERATOR_SERVICE_ACCOUNT"]
        assert account == f"{NAMESPACE}:{operator['serviceAccountName']}"
    token = next(volume["projected"] for volume in operator["volumes"] if volume["name"] == "gateway-token")
    assert token["sources"][0]["serviceAccountToken"]["audience"] == names.OBSERVED_AUDIENCE
    assert (
        env_of(operator["containers"][0])["TAILBOUND_GATEWAY_SERVICE"]
        == named(objects, "Service", "tailbound-gateway")["metadata"]["name"]
    )


def test_the_gateway_is_replaced_without_a_gap_and_stops_after_its_requests() -> None:
    deployment = named(template(), "Deployment", "tailbound-gateway")
    assert deployment["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    pod = deployment["spec"]["template"]["spec"]
    assert [(each["name"], each.get("restartPolicy")) for each in pod["initContainers"]] == [
        ("bootstrap", None),
        ("sidecar", "Always"),
    ]
    assert pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"] == [
        "tailbound",
        "gateway",
        "drain",
    ]


def test_monitors_exist_only_when_asked_for() -> None:
    assert of_kind(template(), "PodMonitor") == []
    monitors = of_kind(
        template(
            "metrics.podMonitor.enabled=true",
            "metrics.podMonitor.labels.release=prometheus",
            "networkPolicies.enabled=false",
        ),
        "PodMonitor",
    )
    assert {each["metadata"]["name"] for each in monitors} == {"tailbound-operator", "tailbound-gateway"}
    assert all(each["metadata"]["labels"]["release"] == "prometheus" for each in monitors)
    gateway = next(each for each in monitors if each["metadata"]["name"] == "tailbound-gateway")
    (endpoint,) = gateway["spec"]["podMetricsEndpoints"]
    assert endpoint["relabelings"] == [{"targetLabel": "job", "replacement": names.GATEWAYS_JOB}]
    assert endpoint["interval"] == "2s", "the queries look back 10 s; the default of 30 s finds nothing"


def test_the_charts_definitions_are_the_generated_ones() -> None:
    assert stale(CHART / "files" / "crds") == []


@pytest.mark.parametrize(("keep", "policy"), [("true", "keep"), ("false", None)])
def test_definitions_are_installed_unchanged_with_their_policy(keep: str, policy: str | None) -> None:
    rendered = of_kind(template(f"crds.keep={keep}"), "CustomResourceDefinition")
    source = [each for path in (ROOT / "crds").glob("*.yaml") for each in documents(path.read_text())]
    assert {each["metadata"]["name"]: each["spec"] for each in rendered} == {
        each["metadata"]["name"]: each["spec"] for each in source
    }
    assert {each["metadata"].get("annotations", {}).get("helm.sh/resource-policy") for each in rendered} == {
        policy
    }


def test_definitions_can_be_left_out() -> None:
    assert of_kind(template("crds.enabled=false"), "CustomResourceDefinition") == []


def test_the_package_holds_everything(tmp_path: Path) -> None:
    helm("package", CHART, "--destination", tmp_path)
    (package,) = tmp_path.glob("tailbound-*.tgz")
    # Each rendering makes another certificate, unless there is a Secret for it.
    settings = ("--set", "image.registry=localhost,gateway.observedTLS.secretName=own")
    assert helm("template", "tailbound", package, *settings) == helm(
        "template", "tailbound", CHART, *settings
    )
    assert "templates/gateway/certificate.yaml" in helm(
        "template", "tailbound", package, "--set", "image.registry=localhost"
    )


FOREIGN = sorted(path.stem for path in (CHART / "files" / "runtimes").glob("*.yaml"))


def test_runtimes_of_other_servers_are_there_when_they_are_enabled(tmp_path: Path) -> None:
    on = [f"runtimes.{name}.enabled=true" for name in FOREIGN]
    images = [f"runtimes.{name}.image=registry.example.com/{name}:1" for name in FOREIGN]
    data = named(template(*on, *images), "ConfigMap", "tailbound-defaults")["data"]
    for name, text in data.items():
        (tmp_path / name).write_text(text)
    made = {each["metadata"]["name"]: each for each in load_defaults(tmp_path)}
    for name in FOREIGN:
        assert made[name]["spec"]["server"]["image"] == f"registry.example.com/{name}:1"
    with pytest.raises(HelmError, match=r"runtimes\.nim\.image is empty: set it"):
        template("runtimes.nim.enabled=true")
