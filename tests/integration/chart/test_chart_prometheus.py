"""The chart's own Prometheus, or the address of somebody else's."""

import json

import pytest
import yaml
from tailbound.api import names
from tailbound.controller import targets

from tests.integration.chart.helm import NAMESPACE, HelmError, Object, env_of, named, pod_of, template

ENABLED = "prometheus.enabled=true"


def address(*settings: str) -> str | None:
    """What the operator is told."""
    return env_of(pod_of(template(*settings), "operator")["containers"][0])["TAILBOUND_PROMETHEUS_URL"]


def jobs(*settings: str) -> dict[str, Object]:
    """The scrape configurations by name."""
    text = named(template(ENABLED, *settings), "ConfigMap", "tailbound-prometheus")["data"]["prometheus.yml"]
    return {job["job_name"]: job for job in yaml.safe_load(text)["scrape_configs"]}


def test_there_is_none_unless_asked_for() -> None:
    assert not [each for each in template() if each["metadata"]["name"] == "tailbound-prometheus"]
    assert address() == ""


def test_the_operator_is_told_which_one_to_ask() -> None:
    assert (
        address("prometheus.url=https://prometheus.test/x", "networkPolicies.enabled=false")
        == "https://prometheus.test/x"
    )
    assert address(ENABLED, "clusterDomain=cluster.test") == (
        f"http://tailbound-prometheus.{NAMESPACE}.svc.cluster.test:9090"
    )
    port = named(template(ENABLED), "Service", "tailbound-prometheus")["spec"]["ports"][0]["port"]
    assert port == 9090


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            (ENABLED, "prometheus.url=http://p.test"),
            "prometheus.url is http://p.test and prometheus.enabled",
        ),
        (("prometheus.url=p.test:9090",), "at '/prometheus/url': 'p.test:9090' does not match pattern"),
        (
            ("prometheus.alertmanagers={http://alerts.test}",),
            "at '/prometheus/alertmanagers/0': 'http://alerts.test' does not match pattern",
        ),
        (("prometheus.retention.size=1Gi",), "at '/prometheus/retention/size': '1Gi' does not match pattern"),
        (("prometheus.retention.time=soon",), "at '/prometheus/retention/time': 'soon' does not match"),
        (
            (ENABLED, "prometheus.retention.size=2GB"),
            "prometheus.retention.size is 2GB and prometheus.volume.size is 2Gi: make the volume larger",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(settings: tuple[str, ...], message: str) -> None:
    with pytest.raises(HelmError) as refused:
        template(*settings)
    assert message in str(refused.value)


def test_the_operator_says_what_is_scraped() -> None:
    base = f"http://tailbound-operator.{NAMESPACE}.svc.cluster.local:{names.OPERATOR_METRICS_PORT}"
    found = jobs()
    operator = found.pop(names.OPERATOR_JOB)
    assert {name: job["http_sd_configs"][0]["url"] for name, job in found.items()} == {
        names.GATEWAYS_JOB: base + targets.GATEWAYS_PATH,
        names.SERVING_JOB: base + targets.SERVING_PATH,
    }
    assert sorted(set(operator) & {"static_configs", "dns_sd_configs", "http_sd_configs"}) == [
        "dns_sd_configs"
    ]


def test_every_operator_pod_is_scraped_by_the_name_of_its_own_service() -> None:
    settings = (ENABLED, "clusterDomain=cluster.test", "operator.replicas=3")
    (found,) = jobs(*settings)[names.OPERATOR_JOB]["dns_sd_configs"]
    port, transport, service, namespace, *domain = found["names"][0].split(".")
    assert (found["type"], transport, domain) == ("SRV", "_tcp", ["svc", "cluster", "test"])

    objects = template(*settings)
    spec = named(objects, "Service", service)["spec"]
    assert spec["clusterIP"] == "None"  # so that each pod has a record
    assert spec["publishNotReadyAddresses"], "an operator that is not ready is what alerts are about"
    assert spec["ipFamilyPolicy"] == "SingleStack", "a pod with two addresses would be counted twice"
    assert namespace == NAMESPACE
    (asked,) = [each for each in spec["ports"] if f"_{each['name']}" == port]
    operator = named(objects, "Deployment", "tailbound-operator")["spec"]
    assert spec["selector"].items() <= operator["template"]["metadata"]["labels"].items()
    (container,) = operator["template"]["spec"]["containers"]
    numbers = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert asked["port"] == numbers[asked["targetPort"]] == names.OPERATOR_METRICS_PORT


def test_gateways_name_services_themselves_and_servers_may_not() -> None:
    honoured = {name: job["honor_labels"] for name, job in jobs().items()}
    assert honoured == {names.GATEWAYS_JOB: True, names.SERVING_JOB: False, names.OPERATOR_JOB: True}


def test_every_kind_of_prometheus_gets_the_same_alerts() -> None:
    settings = (ENABLED, "metrics.prometheusRule.enabled=true", "metrics.prometheusRule.labels.release=kps")
    objects = template(*settings)
    rule = named(objects, "PrometheusRule", "tailbound")
    own = named(objects, "ConfigMap", "tailbound-prometheus")["data"]
    assert rule["metadata"]["labels"]["release"] == "kps"
    assert yaml.safe_load(own["prometheus.yml"])["rule_files"] == ["rules.yml"]
    assert rule["spec"] == yaml.safe_load(own["rules.yml"])


def test_alerts_go_where_the_values_say() -> None:
    def alerting(*settings: str) -> Object | None:
        text = named(template(ENABLED, *settings), "ConfigMap", "tailbound-prometheus")["data"][
            "prometheus.yml"
        ]
        found: Object | None = yaml.safe_load(text).get("alerting")
        return found

    assert alerting() is None
    assert alerting("prometheus.alertmanagers={alerts.test:9093}") == {
        "alertmanagers": [{"static_configs": [{"targets": ["alerts.test:9093"]}]}]
    }


@pytest.mark.parametrize(
    ("settings", "data"),
    [
        ((), {"name": "data", "emptyDir": {"sizeLimit": "2Gi"}}),
        (("prometheus.volume.size=5Gi",), {"name": "data", "emptyDir": {"sizeLimit": "5Gi"}}),
        (
            ("prometheus.volume.persistent=true",),
            {"name": "data", "persistentVolumeClaim": {"claimName": "tailbound-prometheus"}},
        ),
    ],
)
def test_data_is_where_the_values_say(settings: tuple[str, ...], data: Object) -> None:
    assert data in pod_of(template(ENABLED, *settings), "prometheus")["volumes"]


def test_a_claim_is_as_large_as_asked_for() -> None:
    settings = ("prometheus.volume.persistent=true", "prometheus.volume.size=5Gi")
    claim = named(template(ENABLED, *settings), "PersistentVolumeClaim", "tailbound-prometheus")["spec"]
    assert claim["resources"]["requests"] == {"storage": "5Gi"}
    assert "storageClassName" not in claim


def test_values_reach_the_pod() -> None:
    settings = (
        "prometheus.image=p.test/prometheus:1",
        "prometheus.retention.time=6h",
        "prometheus.volume.size=1.5Gi",
    )
    pod = pod_of(template(ENABLED, "prometheus.nodeSelector.pool=infra", *settings), "prometheus")
    (container,) = pod["containers"]
    assert container["image"] == "p.test/prometheus:1"
    assert "--storage.tsdb.retention.time=6h" in container["args"]
    assert pod["nodeSelector"] == {"pool": "infra"}


def test_a_changed_configuration_restarts_it() -> None:
    def checksum(*settings: str) -> str:
        deployment = named(template(ENABLED, *settings), "Deployment", "tailbound-prometheus")
        return str(deployment["spec"]["template"]["metadata"]["annotations"]["checksum/config"])

    assert checksum() == checksum() != checksum("clusterDomain=cluster.test")


def test_the_dashboard_is_where_a_sidecar_of_grafana_looks() -> None:
    found = named(
        template("metrics.grafanaDashboard.enabled=true"), "ConfigMap", "tailbound-grafana-dashboard"
    )
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(found["data"]["tailbound.json"])["uid"] == "tailbound"
