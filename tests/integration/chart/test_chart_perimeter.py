"""Who reaches which port, by the chart's NetworkPolicies; and which containers hold a token."""

import json
import ssl
from base64 import b64decode
from contextlib import suppress
from pathlib import Path

import pytest
from tailbound.api import names
from tailbound.api.names import OBSERVED_TLS_NAME
from tailbound.gateway.certificate import ServerCertificate

from e2e.scenarios.library.network_policies import Endpoint, allowed
from tests.integration.chart.helm import (
    CHART,
    NAMESPACE,
    HelmError,
    Object,
    containers,
    documents,
    helm,
    named,
    of_kind,
    pod_of,
    template,
)

RISK = ("networkPolicies.servingNamespaces={risk}", "prometheus.enabled=true")
TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount"


def component(name: str, namespace: str = NAMESPACE, release: str = "tailbound") -> Endpoint:
    return Endpoint(
        namespace,
        {
            "app.kubernetes.io/name": "tailbound",
            "app.kubernetes.io/instance": release,
            names.COMPONENT_LABEL: name,
        },
    )


GATEWAY, OPERATOR, PROMETHEUS = component("gateway"), component("operator"), component("prometheus")
SERVING = Endpoint("risk", {names.SERVICE_LABEL: "churn"})
STRANGER, NEIGHBOUR = Endpoint("ads"), Endpoint("risk", {"app": "notebook"})
IMPOSTOR = component("gateway", namespace="ads")
OTHER_RELEASE = component("operator", release="other")
BESIDE = Endpoint(NAMESPACE, {"app": "beside"})
EVERYBODY = {
    "gateway": GATEWAY,
    "operator": OPERATOR,
    "prometheus": PROMETHEUS,
    "serving": SERVING,
    "stranger": STRANGER,
    "neighbour": NEIGHBOUR,
    "impostor": IMPOSTOR,
    "other-release": OTHER_RELEASE,
    "beside": BESIDE,
}


def policies(*settings: str) -> list[Object]:
    found = of_kind(template(*settings), "NetworkPolicy")
    for each in found:
        each["metadata"].setdefault("namespace", NAMESPACE)
    return found


@pytest.mark.parametrize(
    ("target", "port", "who"),
    [
        pytest.param(SERVING, 8080, {"gateway", "operator", "prometheus"}, id="serving-pods"),
        pytest.param(GATEWAY, names.GATEWAY_HTTP_PORT, set(EVERYBODY), id="requests"),
        pytest.param(GATEWAY, names.GATEWAY_HEALTH_PORT, set(EVERYBODY), id="probes-of-gateways"),
        pytest.param(GATEWAY, names.GATEWAY_OBSERVED_PORT, {"operator"}, id="observed"),
        pytest.param(GATEWAY, names.GATEWAY_METRICS_PORT, {"prometheus"}, id="metrics-of-gateways"),
        pytest.param(GATEWAY, 9901, set(), id="anything-else-of-gateways"),
        pytest.param(OPERATOR, names.OPERATOR_METRICS_PORT, {"prometheus"}, id="metrics-of-the-operator"),
        pytest.param(OPERATOR, names.OPERATOR_HEALTH_PORT, set(EVERYBODY), id="probes-of-the-operator"),
        pytest.param(PROMETHEUS, 9090, {"operator"}, id="prometheus"),
        pytest.param(NEIGHBOUR, 8080, set(EVERYBODY), id="what-is-not-ours"),
    ],
)
def test_who_reaches_a_port(target: Endpoint, port: int, who: set[str]) -> None:
    found = policies(*RISK)
    assert {name for name, source in EVERYBODY.items() if allowed(found, source, target, port)} == who


def test_watched_namespaces_are_protected_without_being_listed() -> None:
    found = policies("watchNamespaces={risk}")
    assert allowed(found, GATEWAY, SERVING, 8080)
    assert not allowed(found, NEIGHBOUR, SERVING, 8080)
    assert not allowed(found, PROMETHEUS, SERVING, 8080), "the chart installs none here"


def test_a_prometheus_of_ones_own_is_to_be_named() -> None:
    with pytest.raises(HelmError, match=r"networkPolicies\.metricsFrom is empty"):
        template("prometheus.url=http://p.test")
    peer = r"networkPolicies.metricsFrom[0].namespaceSelector.matchLabels.kubernetes\.io/metadata\.name"
    found = policies("prometheus.url=http://p.test", f"{peer}=monitoring")
    theirs = Endpoint("monitoring", {"app": "prometheus"})
    assert allowed(found, theirs, GATEWAY, names.GATEWAY_METRICS_PORT)
    assert not allowed(found, theirs, GATEWAY, names.GATEWAY_OBSERVED_PORT)
    assert not allowed(found, STRANGER, GATEWAY, names.GATEWAY_METRICS_PORT)


def test_policies_can_be_left_out() -> None:
    assert (
        policies("networkPolicies.enabled=false", "prometheus.enabled=true", "watchNamespaces={risk}") == []
    )


def test_only_what_talks_to_the_api_server_has_a_token() -> None:
    objects = template("prometheus.enabled=true")
    pods = {name: pod_of(objects, name) for name in ("operator", "gateway", "prometheus")}
    assert [pod["automountServiceAccountToken"] for pod in pods.values()] == [False] * 3
    assert {each["automountServiceAccountToken"] for each in of_kind(objects, "ServiceAccount")} == {False}
    holders = {
        (name, container["name"])
        for name, pod in pods.items()
        for container in containers(pod)
        if TOKEN in [mount["mountPath"] for mount in container.get("volumeMounts", ())]
    }
    assert holders == {("operator", "operator"), ("gateway", "sidecar")}
    for name in ("operator", "gateway"):
        (volume,) = [each for each in pods[name]["volumes"] if each["name"] == "api-token"]
        (token, authority) = volume["projected"]["sources"]
        assert token["serviceAccountToken"] == {"expirationSeconds": 3600, "path": "token"}
        assert authority["configMap"]["name"] == "kube-root-ca.crt"


def test_two_releases_share_no_name_of_a_cluster_wide_object() -> None:
    settings = ("--namespace", "ads", "--set", "image.registry=localhost,watchNamespaces={ads}")
    objects = documents(helm("template", "second", CHART, *settings))
    wide = [each for each in objects if each["kind"].startswith("Cluster") or "Admission" in each["kind"]]
    assert len(wide) > 10
    assert [
        name for each in wide if not (name := each["metadata"]["name"]).startswith("second-tailbound-")
    ] == []
    policies = [each for each in wide if each["kind"].endswith("Policy")]
    scopes = [each["spec"]["matchConstraints"]["namespaceSelector"] for each in policies]
    assert [scope["matchExpressions"][0]["values"] for scope in scopes] == [["ads"]] * len(policies)


def test_chart_makes_the_certificate_of_the_gateways_and_gives_the_key_to_them_alone(tmp_path: Path) -> None:
    objects = template()
    secret = named(objects, "Secret", OBSERVED_TLS_NAME)
    for name, value in secret["data"].items():
        (tmp_path / name).write_bytes(b64decode(value))
    server, client = ServerCertificate(tmp_path).context, ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_verify_locations(str(tmp_path / "ca.crt"))
    _shake_hands(server, client)
    sources = json.dumps(pod_of(objects, "operator")["volumes"])
    assert "ca.crt" in sources
    assert "tls.key" not in sources
    holders = [
        container["name"]
        for container in containers(pod_of(objects, "gateway"))
        if "observed-tls" in [mount["name"] for mount in container["volumeMounts"]]
    ]
    assert holders == ["sidecar"]


def _shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    """A handshake in memory. Raises SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=OBSERVED_TLS_NAME),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(3):
        for end in ends:
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()
    assert client.verify_mode is ssl.CERT_REQUIRED
    assert all(end.version() for end in ends)


def test_a_secret_of_ones_own_takes_the_place_of_the_charts_certificate() -> None:
    objects = template("gateway.observedTLS.secretName=from-cert-manager")
    assert of_kind(objects, "Secret") == []
    volumes = json.dumps([pod_of(objects, name)["volumes"] for name in ("gateway", "operator")])
    assert volumes.count("from-cert-manager") == 2
