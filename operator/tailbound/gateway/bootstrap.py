"""What Envoy is started with: its identity, where the sidecar listens, the listener, and what it measures."""

import json
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tailbound.gateway.counting import EVICTION_INTERVAL, STATS_PREFIX
from tailbound.gateway.listener import ADS, STAT_PREFIX, listener
from tailbound.gateway.overload import overload_manager

XDS_CLUSTER: Final = "sidecar"

_TYPES: Final = "type.googleapis.com/envoy.extensions"

# Everything else is not even counted: all of it is tens of megabytes per thousand services.
STATS: Final = (
    {"exact": "server.live"},
    {"exact": "server.uptime"},
    {"exact": "server.concurrency"},
    {"exact": "server.memory_allocated"},
    {"exact": "server.memory_physical_size"},
    {"exact": "overload.envoy.resource_monitors.fixed_heap.pressure"},
    {"exact": "overload.envoy.overload_actions.stop_accepting_requests.active"},
    {"exact": "overload.envoy.overload_actions.reset_high_memory_stream.count"},
    {"exact": "control_plane.connected_state"},
    {"exact": "cluster_manager.active_clusters"},
    {"exact": "cluster_manager.warming_clusters"},
    {"prefix": f"http.{STAT_PREFIX}.downstream_cx_active"},
    {"prefix": f"http.{STAT_PREFIX}.downstream_cx_total"},
    {"prefix": f"http.{STAT_PREFIX}.downstream_rq_"},
    {"suffix": ".upstream_rq_total"},
    {"suffix": ".upstream_rq_active"},
    {"suffix": ".membership_total"},
    {"prefix": f"{STATS_PREFIX}."},
)


@dataclass(frozen=True)
class RunDirectory:
    """The folder that Envoy and its sidecar share."""

    path: Path

    @property
    def bootstrap(self) -> Path:
        """Envoy's configuration."""
        return self.path / "envoy.yaml"

    @property
    def xds_socket(self) -> Path:
        """The socket on which the sidecar serves delta ADS."""
        return self.path / "xds.sock"

    @property
    def admin_socket(self) -> Path:
        """The socket on which Envoy serves its admin interface."""
        return self.path / "admin.sock"

    @property
    def snapshot(self) -> Path:
        """The routes that were last applied."""
        return self.path / "snapshot.json"

    @property
    def envoy_start(self) -> Path:
        """When the running Envoy started."""
        return self.path / "envoy-start"

    @property
    def draining(self) -> Path:
        """Exists while this pod is on its way out."""
        return self.path / "draining"


def bootstrap(
    run: RunDirectory,
    pod_name: str,
    address: str,
    max_request_bytes: int,
    memory_bytes: int,
    cluster_domain: str,
) -> dict[str, Any]:
    """Envoy's bootstrap message as data. `memory_bytes` is the limit of Envoy's container."""
    return {
        "node": {"id": pod_name, "cluster": "tailbound-gateway"},
        "admin": {"address": {"pipe": {"path": str(run.admin_socket), "mode": 0o600}}},
        "dynamic_resources": {"ads_config": _ads_source(), "cds_config": ADS},
        "static_resources": {
            "listeners": [listener(address, max_request_bytes, cluster_domain)],
            "clusters": [_sidecar(run)],
        },
        "stats_eviction_interval": f"{int(EVICTION_INTERVAL.total_seconds())}s",
        "stats_config": {"stats_matcher": {"inclusion_list": {"patterns": list(STATS)}}},
        # What `shedder` sets.
        "layered_runtime": {"layers": [{"name": "sidecar", "admin_layer": {}}]},
        "overload_manager": overload_manager(memory_bytes),
    }


def write_bootstrap(run: RunDirectory, content: dict[str, Any]) -> None:
    """Write Envoy's configuration (JSON is YAML) and clear away what a former life of the pod left."""
    run.draining.unlink(missing_ok=True)
    run.bootstrap.write_text(json.dumps(content, indent=1))


def wildcard_address() -> str:
    """All addresses of the pod: both families where the kernel has IPv6, else IPv4."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::", 0))
    except OSError:
        return "0.0.0.0"  # noqa: S104 - a gateway answers on every address of its pod
    return "::"


def _ads_source() -> dict[str, Any]:
    return {
        "api_type": "DELTA_GRPC",
        "transport_api_version": "V3",
        "set_node_on_first_message_only": True,
        "grpc_services": [
            {
                "envoy_grpc": {
                    "cluster_name": XDS_CLUSTER,
                    "retry_policy": {"retry_back_off": {"base_interval": "0.1s", "max_interval": "0.5s"}},
                }
            }
        ],
    }


def _sidecar(run: RunDirectory) -> dict[str, Any]:
    endpoint = {"endpoint": {"address": {"pipe": {"path": str(run.xds_socket)}}}}
    options = f"{_TYPES}.upstreams.http.v3.HttpProtocolOptions"
    return {
        "name": XDS_CLUSTER,
        "type": "STATIC",
        "connect_timeout": "1s",
        "typed_extension_protocol_options": {
            options.removeprefix("type.googleapis.com/"): {
                "@type": options,
                "explicit_http_config": {"http2_protocol_options": {}},
            }
        },
        "load_assignment": {"cluster_name": XDS_CLUSTER, "endpoints": [{"lb_endpoints": [endpoint]}]},
    }
