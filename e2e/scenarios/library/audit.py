"""Who wrote what to the API server: its audit log, read from a mark on."""

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from e2e.scenarios.library.api import Object

WRITING_VERBS: Final = frozenset({"create", "update", "patch", "delete", "deletecollection"})
OPERATOR_USER: Final = "system:serviceaccount:tailbound-system:tailbound-operator"
# The operator follows an event within a fraction of this.
QUIET_SECONDS: Final = 4
POD_NAME_KEY: Final = "authentication.kubernetes.io/pod-name"


@dataclass(frozen=True)
class Write:
    """One request that may have changed something."""

    received: datetime
    completed: datetime
    user: str
    pod: str
    verb: str
    resource: str
    namespace: str
    name: str
    subresource: str
    code: int

    @property
    def succeeded(self) -> bool:
        """Whether the API server carried it out."""
        return self.code < 400

    def __str__(self) -> str:
        target = "/".join(
            part for part in (self.resource, self.namespace, self.name, self.subresource) if part
        )
        return f"{self.completed:%H:%M:%S.%f} {self.user} {self.pod} {self.verb} {target} -> {self.code}"


def parse(event: Object) -> Write | None:
    """The write that an audit event tells of; None for reads and for requests that are still running."""
    if event.get("stage") != "ResponseComplete" or event["verb"] not in WRITING_VERBS:
        return None
    target = event.get("objectRef", {})
    return Write(
        received=datetime.fromisoformat(event["requestReceivedTimestamp"]),
        completed=datetime.fromisoformat(event["stageTimestamp"]),
        user=event["user"]["username"],
        pod=",".join(event["user"].get("extra", {}).get(POD_NAME_KEY, [])),
        verb=event["verb"],
        resource=target.get("resource", ""),
        namespace=target.get("namespace", ""),
        name=target.get("name", ""),
        subresource=target.get("subresource", ""),
        code=event.get("responseStatus", {}).get("code", 0),
    )


class AuditLog:
    """The log of the cluster under test. The API server writes it in order of completion."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def mark(self) -> int:
        """A place in the log: everything that completes from now on lies behind it."""
        return self._path.stat().st_size

    def quiet_mark(self, namespace: str) -> int:
        """A place behind which the operator has nothing left to write in a namespace that nobody changes."""
        while True:
            mark = self.mark()
            time.sleep(QUIET_SECONDS)
            if not self.writes(mark, user=OPERATOR_USER, namespaces=[namespace]):
                return mark

    def writes(
        self, mark: int, *, user: str | None = None, namespaces: Iterable[str] | None = None
    ) -> list[Write]:
        """Successful and refused writes behind the mark, by user and by namespace if asked for."""
        wanted = None if namespaces is None else frozenset(namespaces)
        with self._path.open("rb") as log:
            log.seek(mark)
            lines = log.read().split(b"\n")[:-1]  # the last line may be half written
        parsed = (parse(json.loads(line)) for line in lines if user is None or user.encode() in line)
        return [
            write
            for write in parsed
            if write is not None
            and (user is None or write.user == user)
            and (wanted is None or write.namespace in wanted)
        ]


def assert_at_most_one_condition(writes: list[Write]) -> None:
    """Only status writes, one a service, plus an Event for each."""
    told = [str(write) for write in writes]
    statuses = [write.name for write in writes if write.resource == "inferenceservices"]
    others = [write for write in writes if write.resource not in ("inferenceservices", "events")]
    assert all(write.subresource == "status" for write in writes if write.resource == "inferenceservices"), (
        told
    )
    assert len(statuses) == len(set(statuses)), told
    assert others == [], told
