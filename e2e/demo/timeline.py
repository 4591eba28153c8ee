"""When an InferenceService's status said what: its changes as they arrive, with this machine's clock."""

import json
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from e2e.cluster import Cluster, binaries
from e2e.cluster.processes import ProcessError

Object = dict[str, Any]


@dataclass(frozen=True)
class Moment:
    """The whole object at the time it was seen; seconds of the monotonic clock."""

    at_seconds: float
    service: Object

    def condition(self, kind: str) -> Object:
        """The condition of this type; empty if there is none."""
        conditions = self.service.get("status", {}).get("conditions", [])
        return next((each for each in conditions if each["type"] == kind), {})

    def current(self) -> bool:
        """Whether the status speaks about the newest spec."""
        observed = self.service.get("status", {}).get("observedGeneration")
        return bool(observed == self.service["metadata"]["generation"])

    def ready(self) -> bool:
        """Whether the newest spec is what serves."""
        return self.current() and self.condition("Ready").get("status") == "True"

    def stable(self) -> str | None:
        """The revision that serves."""
        stable: Object = self.service.get("status", {}).get("stable") or {}
        return stable.get("revision")

    def traffic_generation(self) -> int:
        """Generation of the shares of traffic; 0 before the first."""
        traffic: Object = self.service.get("status", {}).get("traffic") or {}
        return int(traffic.get("generation", 0))


class Timeline:
    """Follows one InferenceService in a thread until it is closed."""

    def __init__(self, cluster: Cluster, namespace: str, name: str) -> None:
        self.moments: list[Moment] = []
        self._what = f"{namespace}/{name}"
        self._changed = threading.Condition()
        self._process = subprocess.Popen(
            [
                *(binaries.program("kubectl"), "--kubeconfig", cluster.kubeconfig),
                *("get", "inferenceservice", name, f"--namespace={namespace}", "--watch", "--output=json"),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def __enter__(self) -> "Timeline":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()
        self._thread.join()

    def until(self, what: str, holds: Callable[[Moment], bool], timeout_seconds: float) -> Moment:
        """The first moment at which this held. Raises ProcessError after timeout_seconds."""
        deadline = time.monotonic() + timeout_seconds
        with self._changed:
            while True:
                found = next((moment for moment in self.moments if holds(moment)), None)
                if found is not None:
                    return found
                if not self._changed.wait(timeout=deadline - time.monotonic()):
                    raise ProcessError(f"{self._what}: {what}: not so within {timeout_seconds:g} s")

    def _read(self) -> None:
        assert self._process.stdout is not None
        decoder, text = json.JSONDecoder(), ""
        for line in self._process.stdout:
            text += line
            if line != "}\n":  # kubectl indents: only an object's end stands in the first column
                continue
            service, _ = decoder.raw_decode(text.lstrip())
            text = ""
            with self._changed:
                self.moments.append(Moment(time.monotonic(), service))
                self._changed.notify_all()
