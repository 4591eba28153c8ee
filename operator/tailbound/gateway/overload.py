"""What Envoy does as the memory of its container fills up, and how many connections it holds.

The heap is measured every REFRESH. It may take HEAP_SHARE of the container's memory: the rest is for the
kernel's socket buffers and for what arrives between two measurements. By the heap's share of that:

| share    | Envoy                                                                             |
|----------|-----------------------------------------------------------------------------------|
| 0.5      | begins to cut the requests that hold most memory, those above 32 KiB, more as it rises |
| 0.6      | returns free pages to the kernel                                                  |
| 0.7      | begins to close idle connections sooner, down to after 5 s                        |
| 0.85     | closes each connection after its present answer                                   |
| 0.95     | answers every request with a 503 that has Retry-After                             |

So the bodies of one client are dropped long before another's small requests are refused.
"""

from typing import Any, Final

HEAP_SHARE: Final = 0.8
REFRESH: Final = "0.025s"
# Buffers of both sides and the codec of an HTTP/1 connection whose sender has to wait.
BYTES_PER_CONNECTION: Final = 163_840
# 2 to the power of this is what a request must hold to be cut.
_LEAST_TO_CUT: Final = 15

_MONITORS: Final = "type.googleapis.com/envoy.extensions.resource_monitors"
_HEAP: Final = "envoy.resource_monitors.fixed_heap"
_CONNECTIONS: Final = "envoy.resource_monitors.global_downstream_max_connections"


def overload_manager(memory_bytes: int) -> dict[str, Any]:
    """Envoy's overload manager for a container that may use `memory_bytes`."""
    return {
        "refresh_interval": REFRESH,
        "buffer_factory_config": {"minimum_account_to_track_power_of_two": _LEAST_TO_CUT},
        "resource_monitors": [
            _monitor(
                _HEAP, "fixed_heap.v3.FixedHeapConfig", max_heap_size_bytes=int(memory_bytes * HEAP_SHARE)
            ),
            _monitor(
                _CONNECTIONS,
                "downstream_connections.v3.DownstreamConnectionsConfig",
                max_active_downstream_connections=memory_bytes // BYTES_PER_CONNECTION,
            ),
        ],
        "actions": [
            _action("reset_high_memory_stream", _scaled(0.5, 0.9)),
            _action("shrink_heap", _threshold(0.6)),
            {**_action("reduce_timeouts", _scaled(0.7, 0.9)), "typed_config": _idle_connections()},
            _action("disable_http_keepalive", _threshold(0.85)),
            _action("stop_accepting_requests", _threshold(0.95)),
        ],
    }


def _monitor(name: str, message: str, **fields: int) -> dict[str, Any]:
    return {"name": name, "typed_config": {"@type": f"{_MONITORS}.{message}", **fields}}


def _action(name: str, trigger: dict[str, Any]) -> dict[str, Any]:
    return {"name": f"envoy.overload_actions.{name}", "triggers": [{"name": _HEAP, **trigger}]}


def _threshold(share: float) -> dict[str, Any]:
    return {"threshold": {"value": share}}


def _scaled(begins: float, full: float) -> dict[str, Any]:
    return {"scaled": {"scaling_threshold": begins, "saturation_threshold": full}}


def _idle_connections() -> dict[str, Any]:
    return {
        "@type": "type.googleapis.com/envoy.config.overload.v3.ScaleTimersOverloadActionConfig",
        "timer_scale_factors": [{"timer": "HTTP_DOWNSTREAM_CONNECTION_IDLE", "min_timeout": "5s"}],
    }
