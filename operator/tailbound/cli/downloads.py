"""The downloads of a service's pods, as their fetch containers log them. Pure."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tailbound.api.runtime_contract import FETCH_CONTAINER
from tailbound.cli.table import table
from tailbound.objects.fields import Object, number, text
from tailbound.objects.pod import Pod

_BAR: Final = 20
_UNITS: Final = (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3))


@dataclass(frozen=True)
class FetchLog:
    """The end of the log of one pod's fetch container."""

    pod: str
    log: str


def fetches(pod: Object) -> bool:
    """Whether the fetch container of a pod runs now."""
    view = Pod(pod)
    statuses = (*view.init_container_statuses, *view.container_statuses)
    return any(status.name == FETCH_CONTAINER and status.running for status in statuses)


def downloads(logs: Sequence[FetchLog]) -> str:
    """A line for each pod: a bar, bytes, rate, and time left; empty without a pod."""
    rows = [["DOWNLOAD OF POD", "DONE", "BYTES", "RATE", "LEFT"]]
    rows += [[each.pod, *_cells(_newest(each.log))] for each in logs]
    return table(rows) if logs else ""


def _newest(log: str) -> Object | None:
    """The newest report of progress; None before the first."""
    return next((line for line in _lines(log) if text(line, "event") == "fetching"), None)


def _lines(log: str) -> Iterator[Object]:
    """The lines, the newest first; the first one may be cut."""
    for line in reversed(log.splitlines()):
        try:
            found: Any = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict):
            yield found


def _cells(line: Object | None) -> list[str]:
    if line is None:
        return ["begins", "-", "-", "-"]
    done, total = number(line, "bytes") or 0, number(line, "total_bytes")
    rate, left = number(line, "bytes_per_second"), number(line, "seconds_left")
    return [
        _bar(done, total) if total else "-",
        _bytes(done) + (f" of {_bytes(total)}" if total else ""),
        f"{_bytes(rate)}/s" if rate is not None else "-",
        _time(left) if left is not None else "-",
    ]


def _bar(done: int, total: int) -> str:
    share = min(1.0, done / total)
    full = int(share * _BAR)
    return f"{'#' * full}{'.' * (_BAR - full)} {share:.0%}"


def _bytes(amount: int) -> str:
    unit, factor = next((each for each in _UNITS if amount >= each[1]), ("B", 1))
    return f"{amount / factor:.3g} {unit}"


def _time(seconds: int) -> str:
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes}m" if hours else f"{minutes}m{rest}s" if minutes else f"{rest}s"
