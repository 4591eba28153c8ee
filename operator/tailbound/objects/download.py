"""How far a pod's download of its model is, as the pod reports it."""

from dataclasses import dataclass
from typing import Any, Final

from tailbound.objects.fields import child, number

_UNITS: Final = (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3))
_TENTH: Final = 10
_MOST: Final = 2**63 - 1
"""The most bytes of a download: what reports more is none, and a division of it could overflow."""


@dataclass(frozen=True)
class DownloadProgress:
    """How much of its model a pod has downloaded.

    done, total: bytes, total is None if the source does not say; rate: bytes a second, None at first.
    """

    done: int
    total: int | None
    rate: int | None

    @property
    def text(self) -> str:
        """Bytes, share, rate and time left for a message, as far as they are known."""
        parts = [amount(self.done)]
        if self.total:
            parts = [f"{amount(self.done)} of {amount(self.total)} ({self._percent} %)"]
        if self.rate:
            parts.append(f"{amount(self.rate)}/s")
        if self.total and self.rate:
            parts.append(f"about {duration((self.total - self.done) // self.rate)} left")
        return ", ".join(parts)

    def is_news_after(self, published: "DownloadProgress | None") -> bool:
        """Whether it is to be published: another tenth, or twice the bytes where the total is not known."""
        if published is None or self.total != published.total or self.done < published.done:
            return True
        if self.total:
            return self._percent // _TENTH > published._percent // _TENTH
        return self.done >= 2 * max(1, published.done)

    @property
    def _percent(self) -> int:
        return 100 * self.done // self.total if self.total else 0


def download_in(document: Any) -> DownloadProgress | None:
    """The progress in a report; None where it reports none, or is no report."""
    report = {"report": document}
    found = child(report, "report")
    done, total, rate = (number(found, name) for name in ("bytes", "total_bytes", "bytes_per_second"))
    if done is None or not 0 <= done <= _MOST or (total is not None and not done <= total <= _MOST):
        return None
    return DownloadProgress(done, total, rate if rate is None or 0 <= rate <= _MOST else None)


def amount(count: int) -> str:
    """Bytes in the largest unit that fits, with three digits."""
    unit, factor = next((each for each in _UNITS if count >= each[1]), ("B", 1))
    return f"{count / factor:.3g} {unit}"


def duration(seconds: int) -> str:
    """Hours and minutes, minutes and seconds, or seconds."""
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes}m" if hours else f"{minutes}m{rest}s" if minutes else f"{rest}s"
