"""The downloads of a service's pods, as their fetch containers log them. Pure."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tailbound.api.runtime_contract import FETCH_CONTAINER
from tailbound.cli.table import table
from tailbound.objects.download import amount, download_in, duration
from tailbound.objects.fields import Object, number, text
from tailbound.objects.pod import Pod

_BAR: Final = 20


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
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            yield found


def _cells(line: Object | None) -> list[str]:
    progress = download_in(line) if line is not None else None
    if line is None or progress is None:
        return ["begins", "-", "-", "-"]
    done, total, rate, left = progress.done, progress.total, progress.rate, number(line, "seconds_left")
    return [
        _bar(done, total) if total else "-",
        amount(done) + (f" of {amount(total)}" if total else ""),
        f"{amount(rate)}/s" if rate is not None else "-",
        duration(left) if left is not None else "-",
    ]


def _bar(done: int, total: int) -> str:
    share = min(1.0, done / total)
    full = int(share * _BAR)
    return f"{'#' * full}{'.' * (_BAR - full)} {share:.0%}"
