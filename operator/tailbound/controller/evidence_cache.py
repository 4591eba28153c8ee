"""Evidence of rollouts that is not written yet: kept in memory between writes of the status.

Each poll of the gateways adds to the evidence. Where nothing else of a status changes, the new evidence is
kept here, the next decision is made on it, and it is written with the next change or after WRITE_SECONDS.

What is stored is always one consistent pair, the readings of the gateways and the evidence up to them. A
process that ends loses what is kept here, and its successor counts the same requests again, from the stored
readings: counters only rise, so that none is lost or counts twice. Only a gateway that ends within the same
seconds takes what it had counted since then with it.
"""

from dataclasses import dataclass
from typing import Final

from tailbound.kube.objects import Key
from tailbound.objects.fields import Object, child

WRITE_SECONDS: Final = 15.0
_EVIDENCE: Final = "evidence"
_OF_POLLS: Final = (_EVIDENCE, "findings", "metrics")
"""Fields of status.rollout that each poll changes. They are computed from the evidence."""


@dataclass(frozen=True)
class _Kept:
    stored: Object
    """The status that is stored."""
    wanted: Object
    """The one that is to be written."""


class EvidenceCache:
    """The newest evidence of each rollout, and when its status was last written. Times are in seconds."""

    def __init__(self) -> None:
        self._kept: dict[Key, _Kept] = {}
        self._written: dict[Key, float] = {}

    def forget(self, key: Key) -> None:
        """The service is gone."""
        self._kept.pop(key, None)
        self._written.pop(key, None)

    def written(self, key: Key, now: float) -> None:
        """A status with the newest evidence was stored."""
        self._kept.pop(key, None)
        self._written[key] = now

    def applied_to(self, key: Key, service: Object) -> Object:
        """The service, with the newest evidence in its status. Of another status than it was for, nothing."""
        kept = self._kept.get(key)
        if kept is None:
            return service
        if child(service, "status") != kept.stored:
            del self._kept[key]
            return service
        return {**service, "status": kept.wanted}

    def to_write(self, key: Key, wanted: Object | None) -> Object | None:
        """The status to write of a decision on `applied_to`; None if nothing is, not even what was kept."""
        kept = self._kept.get(key)
        return wanted if wanted is not None or kept is None else kept.wanted

    def wait(self, key: Key, stored: Object, wanted: Object, now: float) -> float:
        """Keep this status if only its evidence is new: seconds until it is to be written, 0 for now.

        | the stored status | since its last write | wait |
        |---|---|---|
        | has no evidence: this is where counting starts | any | 0 |
        | differs in something else as well | any | 0 |
        | differs in the evidence alone | not known, or WRITE_SECONDS or more | 0 |
        | differs in the evidence alone | less | the rest of them |
        """
        since = self._written.get(key)
        left = 0.0 if since is None or now < since else max(0.0, WRITE_SECONDS - (now - since))
        if left == 0 or not _has_evidence(stored) or _without_evidence(stored) != _without_evidence(wanted):
            return 0.0
        self._kept[key] = _Kept(stored, wanted)
        return left


def _has_evidence(status: Object) -> bool:
    return bool(child(status, "rollout", _EVIDENCE))


def _without_evidence(status: Object) -> Object:
    rollout = child(status, "rollout")
    return {**status, "rollout": {key: value for key, value in rollout.items() if key not in _OF_POLLS}}
