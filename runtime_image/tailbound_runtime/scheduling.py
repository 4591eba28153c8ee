"""The scheduling parameters of a request, `priority` and `timeout`, as Triton has them.

| timeout (microseconds) | the request |
|---|---|
| absent, null or 0 | has the time-out of the service |
| greater than the time-out of the service | has that of the service |
| another whole number | is given up after this time, from its last byte on: 504 |
| anything else | is refused: 400 |

| levels of the server | priority | the request's level |
|---|---|---|
| 0, which is the default | any whole number from 0 on | the only one |
| N | from 1, the first, to N, the last | that one |
| N | absent, null, 0, or greater than N | N |
| any | anything else | it is refused: 400 |

A level goes before all later ones: while its requests keep the model busy, those of later levels wait, up to
their time-outs. Requests of several levels may share a run.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from tailbound_runtime.errors import ApiError
from tailbound_runtime.tensors import as_written

_MOST: Final = 2**64 - 1


class Scheduling(NamedTuple):
    """priority: 0 without one; timeout_seconds: None without one"""

    priority: int
    timeout_seconds: float | None


def scheduling_of(parameters: Mapping[str, Any]) -> Scheduling:
    """Those among the parameters of a request. Raises ApiError 400."""
    if "priority" not in parameters and "timeout" not in parameters:
        return _NONE
    timeout = _whole("timeout", parameters.get("timeout"), "microseconds")
    return Scheduling(
        _whole("priority", parameters.get("priority"), "a level, 1 being the first"), timeout / 1e6 or None
    )


def level_of(priority: int, levels: int) -> int:
    """The level that a request waits in, 1 being the first."""
    if levels <= 1:
        return 1
    return priority if 1 <= priority <= levels else levels


_NONE: Final = Scheduling(0, None)


def _whole(name: str, value: object, meaning: str) -> int:
    if value is None:
        return 0
    if type(value) is not int or not 0 <= value <= _MOST:
        raise ApiError(
            400,
            f"parameter {name!r} is {as_written(value)}: send a whole number from 0 on ({meaning}), or none",
        )
    return value
