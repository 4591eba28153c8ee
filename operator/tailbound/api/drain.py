"""How requests in flight are answered when a serving pod stops."""

from enum import StrEnum
from typing import Annotated, Any

from pydantic import model_validator

from tailbound.api.quantities import Duration
from tailbound.api.quantity_fields import duration_between
from tailbound.api.schema import Model


class DrainMode(StrEnum):
    """Who answers for the requests in flight when a pod stops."""

    SERVER = "server"
    HOLD = "hold"


class Drain(Model):
    """How requests in flight are answered when a pod stops."""

    mode: DrainMode = DrainMode.SERVER
    """server: the server itself keeps serving after SIGTERM and answers what is in flight. hold: SIGTERM
    reaches the server only when no gateway has a request open on the pod, or when the longest request is
    over; for servers that cut what is in flight."""

    time: Annotated[
        Duration,
        duration_between(
            "1s", "10m", "as long as gateways and slow requests need after a pod begins to stop"
        ),
    ] = Duration(10_000)
    """Time for which new requests may still arrive after a pod has begun to stop. With mode server, the
    server serves so long after SIGTERM, while its readiness probe already fails; with mode hold, SIGTERM is
    held back at least so long."""

    @model_validator(mode="before")
    @classmethod
    def _written_as_a_time_alone(cls, raw: Any) -> Any:
        """Reads a drain as an earlier version stored it: a duration alone."""
        return {"time": raw} if isinstance(raw, str) else raw
