"""The operator's settings from its environment. Every error names the variable, its value and the remedy."""

import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from tailbound.api.names import OPERATOR_HEALTH_PORT, OPERATOR_METRICS_PORT
from tailbound.reconcile.model import Settings

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_DNS_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_PULL_POLICIES = ("Always", "IfNotPresent", "Never")


class InvalidSetting(ValueError):  # noqa: N818 - says what is wrong
    """An environment variable that is missing or cannot be used."""


@dataclass(frozen=True)
class OperatorSettings:
    """Everything that one operator process is told. `watch_namespaces` empty: all of them."""

    pod_name: str
    namespace: str
    watch_namespaces: tuple[str, ...]
    services: Settings
    defaults_dir: Path | None = None
    observed_token_file: Path | None = None
    prometheus_url: str | None = None
    health_port: int = OPERATOR_HEALTH_PORT
    metrics_port: int = OPERATOR_METRICS_PORT


def read_settings(environ: Mapping[str, str]) -> OperatorSettings:
    """Settings from environment variables. Raises InvalidSetting."""
    source = _Source(environ)
    namespace = source.one("POD_NAMESPACE", _dns_label)
    return OperatorSettings(
        pod_name=source.one("POD_NAME", _dns_name),
        namespace=namespace,
        watch_namespaces=source.many("TAILBOUND_WATCH_NAMESPACES", _dns_label),
        services=Settings(
            operator_namespace=namespace,
            gateway_service=source.one("TAILBOUND_GATEWAY_SERVICE", _dns_label, "tailbound-gateway"),
            cluster_domain=source.one("TAILBOUND_CLUSTER_DOMAIN", _dns_name, "cluster.local"),
            fetch_image=source.one("TAILBOUND_FETCH_IMAGE", _any),
            image_pull_policy=source.one("TAILBOUND_IMAGE_PULL_POLICY", _pull_policy, "IfNotPresent"),
            image_pull_secrets=source.many("TAILBOUND_IMAGE_PULL_SECRETS", _dns_name),
            fetch_allowed_hosts=source.many("TAILBOUND_FETCH_ALLOWED_HOSTS", _any),
            fetch_denied_cidrs=source.many("TAILBOUND_FETCH_DENIED_CIDRS", _cidr),
        ),
        defaults_dir=source.path("TAILBOUND_DEFAULTS_DIR"),
        observed_token_file=source.path("TAILBOUND_OBSERVED_TOKEN_FILE"),
        prometheus_url=source.url("TAILBOUND_PROMETHEUS_URL"),
    )


class _Source:
    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def one(self, name: str, check: Callable[[str], str | None], default: str = "") -> str:
        value = self._environ.get(name, "").strip() or default
        if not value:
            raise InvalidSetting(f"{name} is not set: set it in the environment of the operator")
        return self._checked(name, value, check)

    def many(self, name: str, check: Callable[[str], str | None]) -> tuple[str, ...]:
        parts = [part.strip() for part in self._environ.get(name, "").split(",")]
        return tuple(self._checked(name, part, check) for part in parts if part)

    def path(self, name: str) -> Path | None:
        value = self._environ.get(name, "").strip()
        return Path(value) if value else None

    def url(self, name: str) -> str | None:
        value = self._environ.get(name, "").strip()
        return self._checked(name, value, _url) if value else None

    @staticmethod
    def _checked(name: str, value: str, check: Callable[[str], str | None]) -> str:
        wanted = check(value)
        if wanted is not None:
            raise InvalidSetting(f"{name}: {value!r} is not {wanted}")
        return value


def _any(_: str) -> None:
    return None


def _dns_label(value: str) -> str | None:
    wanted = "a name of at most 63 lower-case letters, digits and '-'"
    return None if _DNS_LABEL.fullmatch(value) else wanted


def _dns_name(value: str) -> str | None:
    wanted = "a DNS name: lower-case letters, digits, '-' and '.'"
    return None if len(value) <= 253 and _DNS_NAME.fullmatch(value) else wanted


def _pull_policy(value: str) -> str | None:
    return None if value in _PULL_POLICIES else f"one of {', '.join(_PULL_POLICIES)}"


def _url(value: str) -> str | None:
    parts = urlsplit(value)
    is_one = parts.scheme in ("http", "https") and bool(parts.netloc)
    return None if is_one else "an address such as http://prometheus.monitoring.svc:9090"


def _cidr(value: str) -> str | None:
    try:
        ipaddress.ip_network(value)
    except ValueError as error:
        return f"an address range such as 10.0.0.0/8 ({error})"
    return None
