"""What the chart tells a gateway, and what it is told when that is wrong."""

from pathlib import Path

import pytest
from tailbound.environment import SettingError
from tailbound.gateway.settings import read_settings

GOOD = {
    "POD_NAME": "gateway-0",
    "TAILBOUND_WATCH_NAMESPACES": "",
    "TAILBOUND_CLUSTER_DOMAIN": "cluster.local",
    "TAILBOUND_OPERATOR_SERVICE_ACCOUNT": "tailbound-system:tailbound-operator",
    "TAILBOUND_MAX_REQUEST_BYTES": "33554432",
    "TAILBOUND_MEMORY_BYTES": "1073741824",
    "TAILBOUND_TERMINATION_GRACE_SECONDS": "330",
    "TAILBOUND_RUN_DIR": "/run/tailbound",
    "TAILBOUND_OBSERVED_TLS_DIR": "/etc/tailbound/observed-tls",
}


def test_good_settings() -> None:
    settings = read_settings(GOOD)
    assert settings.operator_account == "system:serviceaccount:tailbound-system:tailbound-operator"
    assert settings.run.xds_socket == Path("/run/tailbound/xds.sock")
    assert settings.watch_namespaces == ()


def test_namespaces() -> None:
    assert read_settings({**GOOD, "TAILBOUND_WATCH_NAMESPACES": "a, b,"}).watch_namespaces == ("a", "b")


@pytest.mark.parametrize("name", GOOD)
def test_missing(name: str) -> None:
    with pytest.raises(SettingError, match=f"{name} is not set: the chart sets it"):
        read_settings({key: value for key, value in GOOD.items() if key != name})


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("TAILBOUND_MAX_REQUEST_BYTES", "32Mi", "'32Mi' is not a number of bytes"),
        ("TAILBOUND_MAX_REQUEST_BYTES", "0", "'0' is not a number of bytes from 1"),
        ("TAILBOUND_MAX_REQUEST_BYTES", "4294967296", "is not a number of bytes from 1 to 4294967295"),
        ("TAILBOUND_MEMORY_BYTES", "1Gi", "'1Gi' is not a number of bytes"),
        ("TAILBOUND_TERMINATION_GRACE_SECONDS", "5m", "'5m' is not a number of seconds"),
        ("TAILBOUND_OPERATOR_SERVICE_ACCOUNT", "operator", "'operator' is not NAMESPACE:NAME"),
        ("TAILBOUND_OPERATOR_SERVICE_ACCOUNT", ":operator", "is not NAMESPACE:NAME"),
    ],
)
def test_wrong(name: str, value: str, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        read_settings({**GOOD, name: value})
