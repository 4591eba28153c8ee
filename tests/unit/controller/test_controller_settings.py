"""Settings come from the environment; what is wrong is refused by the name of its variable."""

from pathlib import Path

import pytest
from tailbound.api.hosts import HostPolicy
from tailbound.controller.observed_client import ObservedAccess
from tailbound.controller.settings import read_settings
from tailbound.environment import SettingError

LEAST = {
    "POD_NAME": "op-0",
    "POD_NAMESPACE": "tailbound-system",
    "TAILBOUND_FETCH_IMAGE": "tailbound:1",
}


def test_least_environment_gets_the_defaults() -> None:
    settings = read_settings(LEAST)
    assert settings.watch_namespaces == ()
    assert settings.services.gateway_service == "tailbound-gateway"
    assert settings.services.cluster_domain == "cluster.local"
    assert settings.services.fetcher.image_pull_policy == "IfNotPresent"
    assert settings.services.operator_namespace == "tailbound-system"
    assert settings.defaults_dir is None
    assert settings.observed is None
    assert settings.prometheus_url is None
    assert settings.host_policy is HostPolicy.OPEN


def test_every_variable_is_honoured() -> None:
    settings = read_settings(
        {
            **LEAST,
            "TAILBOUND_WATCH_NAMESPACES": "a, b,",
            "TAILBOUND_GATEWAY_SERVICE": "gw",
            "TAILBOUND_CLUSTER_DOMAIN": "cluster.test",
            "TAILBOUND_IMAGE_PULL_POLICY": "Never",
            "TAILBOUND_IMAGE_PULL_SECRETS": "one,two",
            "TAILBOUND_FETCH_ALLOWED_HOSTS": "models.test",
            "TAILBOUND_FETCH_ALLOWED_CIDRS": "10.0.0.0/8",
            "TAILBOUND_FETCH_TIMEOUT_SECONDS": "7200",
            "TAILBOUND_FETCH_PROXY": "http://proxy:3128",
            "TAILBOUND_FETCH_DENIED_CIDRS": "10.0.0.0/8,fd00::/8",
            "TAILBOUND_HOST_POLICY": "granted",
            "TAILBOUND_DEFAULTS_DIR": "/etc/defaults",
            "TAILBOUND_OBSERVED_TOKEN_FILE": "/var/run/token",
            "TAILBOUND_OBSERVED_CA_FILE": "/var/run/ca.crt",
            "TAILBOUND_PROMETHEUS_URL": "http://prometheus.test:9090/prefix",
        }
    )
    assert settings.watch_namespaces == ("a", "b")
    assert settings.services.gateway_service == "gw"
    assert settings.services.cluster_domain == "cluster.test"
    assert settings.services.fetcher.image == "tailbound:1"
    assert settings.services.fetcher.image_pull_policy == "Never"
    assert settings.services.fetcher.image_pull_secrets == ("one", "two")
    assert settings.services.fetcher.allowed_hosts == ("models.test",)
    assert settings.services.fetcher.allowed_cidrs == ("10.0.0.0/8",)
    assert settings.services.fetcher.timeout_seconds == 7200
    assert settings.services.fetcher.proxy == "http://proxy:3128"
    assert settings.services.fetcher.denied_cidrs == ("10.0.0.0/8", "fd00::/8")
    assert settings.host_policy is HostPolicy.GRANTED
    assert settings.defaults_dir == Path("/etc/defaults")
    assert settings.observed == ObservedAccess(Path("/var/run/token"), Path("/var/run/ca.crt"))
    assert settings.prometheus_url == "http://prometheus.test:9090/prefix"


def test_token_without_an_authority_to_verify_gateways_by_is_refused() -> None:
    with pytest.raises(SettingError, match="TAILBOUND_OBSERVED_CA_FILE is not set"):
        read_settings({**LEAST, "TAILBOUND_OBSERVED_TOKEN_FILE": "/var/run/token"})


@pytest.mark.parametrize("name", sorted(LEAST))
def test_required_variable_is_asked_for_by_name(name: str) -> None:
    with pytest.raises(SettingError, match=f"{name} is not set"):
        read_settings({**LEAST, name: " "})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("POD_NAMESPACE", "Not_A_Label"),
        ("TAILBOUND_WATCH_NAMESPACES", "good,Bad"),
        ("TAILBOUND_GATEWAY_SERVICE", "a.b"),
        ("TAILBOUND_CLUSTER_DOMAIN", "-x"),
        ("TAILBOUND_IMAGE_PULL_POLICY", "Sometimes"),
        ("TAILBOUND_FETCH_DENIED_CIDRS", "10.0.0.0/8,10.0.0.1/8"),
        ("TAILBOUND_PROMETHEUS_URL", "prometheus:9090"),
    ],
)
def test_unusable_value_is_refused_with_variable_and_value(name: str, value: str) -> None:
    with pytest.raises(SettingError) as refused:
        read_settings({**LEAST, name: value})
    assert name in str(refused.value)
    assert value.rsplit(",", maxsplit=1)[-1] in str(refused.value)
