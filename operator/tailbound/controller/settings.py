"""The operator's settings from its environment. Every error names the variable, its value and the remedy."""

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from tailbound.api.hosts import HostPolicy
from tailbound.api.names import OPERATOR_HEALTH_PORT, OPERATOR_METRICS_PORT
from tailbound.api.runtime_contract import FetchEnv
from tailbound.controller.observed_client import ObservedAccess
from tailbound.environment import Environment, whole_number
from tailbound.reconcile.model import Settings
from tailbound.revisions.model_mounts import Fetcher
from tailbound.revisions.pod import USER_ID

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_DNS_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_PULL_POLICIES = ("Always", "IfNotPresent", "Never")


@dataclass(frozen=True)
class OperatorSettings:
    """The settings of one operator process. Empty `watch_namespaces` means all namespaces."""

    pod_name: str
    namespace: str
    watch_namespaces: tuple[str, ...]
    services: Settings
    release: str = "tailbound"
    """Name of the Helm release, which the gateway pods are labelled with."""
    host_policy: HostPolicy = HostPolicy.OPEN
    defaults_dir: Path | None = None
    observed: ObservedAccess | None = None
    """How gateways are asked; None for plain HTTP without a token."""
    prometheus_url: str | None = None
    health_port: int = OPERATOR_HEALTH_PORT
    metrics_port: int = OPERATOR_METRICS_PORT


def read_settings(environ: Mapping[str, str]) -> OperatorSettings:
    """Settings from environment variables. Raises SettingError."""
    source = Environment(environ, "set it in the environment of the operator")
    namespace = source.text("POD_NAMESPACE", _dns_label)
    return OperatorSettings(
        pod_name=source.text("POD_NAME", _dns_name),
        namespace=namespace,
        watch_namespaces=source.texts("TAILBOUND_WATCH_NAMESPACES", _dns_label),
        services=Settings(
            operator_namespace=namespace,
            gateway_service=source.text("TAILBOUND_GATEWAY_SERVICE", _dns_label, "tailbound-gateway"),
            cluster_domain=source.text("TAILBOUND_CLUSTER_DOMAIN", _dns_name, "cluster.local"),
            fetcher=_fetcher(source),
            serving_user_id=_user_id(source.text("TAILBOUND_SERVING_USER_ID", _is_user_id, str(USER_ID))),
        ),
        release=source.text("TAILBOUND_RELEASE", _dns_name, "tailbound"),
        host_policy=HostPolicy(source.text("TAILBOUND_HOST_POLICY", _host_policy, HostPolicy.OPEN)),
        defaults_dir=source.path("TAILBOUND_DEFAULTS_DIR"),
        observed=_observed(source),
        prometheus_url=source.optional("TAILBOUND_PROMETHEUS_URL", _url),
    )


def _fetcher(source: Environment) -> Fetcher:
    return Fetcher(
        image=source.text("TAILBOUND_FETCH_IMAGE"),
        image_pull_policy=source.text("TAILBOUND_IMAGE_PULL_POLICY", _pull_policy, "IfNotPresent"),
        image_pull_secrets=source.texts("TAILBOUND_IMAGE_PULL_SECRETS", _dns_name),
        allowed_hosts=source.texts(FetchEnv.ALLOWED_HOSTS),
        denied_cidrs=source.texts(FetchEnv.DENIED_CIDRS, _cidr),
        allowed_cidrs=source.texts(FetchEnv.ALLOWED_CIDRS, _cidr),
        timeout_seconds=int(source.text(FetchEnv.TIMEOUT_SECONDS, whole_number("seconds", 10**6), "3600")),
        proxy=source.optional(FetchEnv.PROXY),
        ca_certificates=source.optional(FetchEnv.CA_CERTIFICATES),
    )


def _observed(source: Environment) -> ObservedAccess | None:
    token_file = source.path("TAILBOUND_OBSERVED_TOKEN_FILE")
    if token_file is None:
        return None
    return ObservedAccess(token_file, Path(source.text("TAILBOUND_OBSERVED_CA_FILE")))


def _dns_label(value: str) -> str | None:
    wanted = "a name of at most 63 lower-case letters, digits and '-'"
    return None if _DNS_LABEL.fullmatch(value) else wanted


def _dns_name(value: str) -> str | None:
    wanted = "a DNS name: lower-case letters, digits, '-' and '.'"
    return None if len(value) <= 253 and _DNS_NAME.fullmatch(value) else wanted


def _pull_policy(value: str) -> str | None:
    return None if value in _PULL_POLICIES else f"one of {', '.join(_PULL_POLICIES)}"


def _host_policy(value: str) -> str | None:
    return None if value in [*HostPolicy] else f"one of {', '.join(HostPolicy)}"


def _url(value: str) -> str | None:
    parts = urlsplit(value)
    is_one = parts.scheme in ("http", "https") and bool(parts.netloc)
    return None if is_one else "an address such as http://prometheus.monitoring.svc:9090"


_BY_PLATFORM: Final = "platform"


def _is_user_id(value: str) -> str | None:
    known = value == _BY_PLATFORM or (value.isdecimal() and 0 < int(value) < 2**31)
    return None if known else f"a user id above 0, or {_BY_PLATFORM} for one that the platform assigns"


def _user_id(value: str) -> int | None:
    return None if value == _BY_PLATFORM else int(value)


def _cidr(value: str) -> str | None:
    try:
        ipaddress.ip_network(value)
    except ValueError as error:
        return f"an address range such as 10.0.0.0/8 ({error})"
    return None
