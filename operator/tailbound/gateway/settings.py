"""What the chart tells a gateway, by its environment."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tailbound.gateway.bootstrap import RunDirectory


class SettingError(ValueError):
    """An environment variable is missing or wrong; the message names it, its value and the remedy."""


@dataclass(frozen=True)
class GatewaySettings:
    """Read once, at start."""

    pod_name: str
    watch_namespaces: tuple[str, ...]
    """Empty: all namespaces."""
    cluster_domain: str
    operator_account: str
    """User name of the only ServiceAccount that may read /observed."""
    max_request_bytes: int
    run: RunDirectory


def read_settings(environ: Mapping[str, str]) -> GatewaySettings:
    """The settings of this pod. Raises SettingError."""
    namespaces = _required(environ, "TAILBOUND_WATCH_NAMESPACES", may_be_empty=True)
    return GatewaySettings(
        pod_name=_required(environ, "POD_NAME"),
        watch_namespaces=tuple(name.strip() for name in namespaces.split(",") if name.strip()),
        cluster_domain=_required(environ, "TAILBOUND_CLUSTER_DOMAIN"),
        operator_account=_account(environ),
        max_request_bytes=_max_request_bytes(environ),
        run=RunDirectory(Path(_required(environ, "TAILBOUND_RUN_DIR"))),
    )


def _required(environ: Mapping[str, str], name: str, *, may_be_empty: bool = False) -> str:
    value = environ.get(name)
    if value is None or not (value or may_be_empty):
        raise SettingError(f"{name} is not set: the chart sets it on every gateway container")
    return value


def _account(environ: Mapping[str, str]) -> str:
    name = "TAILBOUND_OPERATOR_SERVICE_ACCOUNT"
    value = _required(environ, name)
    namespace, colon, account = value.partition(":")
    if not (namespace and colon and account):
        raise SettingError(f"{name}={value!r} is not NAMESPACE:NAME of a ServiceAccount")
    return f"system:serviceaccount:{namespace}:{account}"


def _max_request_bytes(environ: Mapping[str, str]) -> int:
    name = "TAILBOUND_MAX_REQUEST_BYTES"
    value = _required(environ, name)
    # Envoy holds the limit in 32 bits.
    if not value.isdecimal() or not 0 < int(value) < 2**32:
        raise SettingError(f"{name}={value!r} is not a number of bytes from 1 to {2**32 - 1}")
    return int(value)
