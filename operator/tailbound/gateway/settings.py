"""The settings of a gateway, from the environment that the chart sets."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tailbound.environment import Environment
from tailbound.gateway.bootstrap import RunDirectory


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
    memory_bytes: int
    """Limit of the container in which Envoy runs."""
    termination_grace_seconds: int
    """After this, the kubelet kills what still runs of a pod that stops."""
    run: RunDirectory
    observed_tls: Path
    """Folder with the certificate and the key with which /observed is answered."""


def read_settings(environ: Mapping[str, str]) -> GatewaySettings:
    """The settings of this pod. Raises SettingError."""
    source = Environment(environ, "the chart sets it on every gateway container")
    account = source.text("TAILBOUND_OPERATOR_SERVICE_ACCOUNT", _account)
    return GatewaySettings(
        pod_name=source.text("POD_NAME"),
        watch_namespaces=source.required_texts("TAILBOUND_WATCH_NAMESPACES"),
        cluster_domain=source.text("TAILBOUND_CLUSTER_DOMAIN"),
        operator_account=f"system:serviceaccount:{account}",
        # Envoy holds this limit in 32 bits.
        max_request_bytes=source.number("TAILBOUND_MAX_REQUEST_BYTES", "bytes", 2**32 - 1),
        memory_bytes=source.number("TAILBOUND_MEMORY_BYTES", "bytes", 2**63 - 1),
        termination_grace_seconds=source.number("TAILBOUND_TERMINATION_GRACE_SECONDS", "seconds", 3600),
        run=RunDirectory(Path(source.text("TAILBOUND_RUN_DIR"))),
        observed_tls=Path(source.text("TAILBOUND_OBSERVED_TLS_DIR")),
    )


def _account(value: str) -> str | None:
    namespace, _, account = value.partition(":")
    return None if namespace and account else "NAMESPACE:NAME of a ServiceAccount"
