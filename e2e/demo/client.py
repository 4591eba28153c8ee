"""The client pod's commands, from here: single requests, and load that runs in the background."""

import json
import subprocess
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlencode

from e2e.cluster import Cluster, binaries
from e2e.cluster.processes import ProcessError
from e2e.demo.setting import CLIENT_NAMESPACE, CLIENT_POD, CLIENT_PORT

LOAD_END_SECONDS = 60
"""How long a load that was told to stop may take to hand in its result."""


def post(cluster: Cluster, url: str, body: dict[str, Any], timeout_seconds: float = 30) -> dict[str, Any]:
    """POST a JSON document from inside the cluster and return the JSON answer.

    Raises ProcessError with the answer if its status is not 200.
    """
    asked = urlencode({"method": "POST", "url": url, "timeout": timeout_seconds})
    pod = f"/api/v1/namespaces/{CLIENT_NAMESPACE}/pods/{CLIENT_POD}:{CLIENT_PORT}"
    path = f"{pod}/proxy/request?{asked}"
    text = cluster.kubectl("create", f"--raw={path}", "--filename=-", input=json.dumps(body))
    answer = json.loads(text)
    if answer.get("status") != 200:
        raise ProcessError(f"POST {url} was answered with {text.strip()[:1000]}")
    document: dict[str, Any] = json.loads(answer["body"])
    return document


@dataclass(frozen=True)
class Result:
    """What became of a load's requests."""

    requests: int
    ok: int
    failed: int
    distinct_answers: int
    latency_ms: dict[str, float | None]
    failures: list[dict[str, Any]]

    @classmethod
    def parse(cls, text: str) -> Self:
        document = json.loads(text)
        return cls(**{name: document[name] for name in cls.__dataclass_fields__})


class Load:
    """A load that runs in the client pod until it is stopped, or its seconds are over."""

    def __init__(self, cluster: Cluster, name: str, url: str, body: dict[str, Any], *options: str) -> None:
        self._cluster = cluster
        self._stop_file = f"/tmp/stop-{name}"
        command = ["client", "load", url, "--body", f"--stop-file={self._stop_file}", *options]
        self._cluster.kubectl(*_exec(), "rm", "-f", self._stop_file)
        self._process = subprocess.Popen(
            [binaries.program("kubectl"), "--kubeconfig", cluster.kubeconfig, *_exec("--stdin"), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(body))
        self._process.stdin.close()
        self._process.stdin = None

    def stop(self) -> Result:
        """End the load and return what became of its requests. Raises ProcessError if it broke."""
        self._cluster.kubectl(*_exec(), "touch", self._stop_file)
        try:
            text, errors = self._process.communicate(timeout=LOAD_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise ProcessError(f"the load did not end within {LOAD_END_SECONDS} s") from None
        if self._process.returncode:
            raise ProcessError(f"the load broke: {errors.strip()}")
        return Result.parse(text)


def _exec(*options: str) -> list[str]:
    return ["exec", *options, f"--namespace={CLIENT_NAMESPACE}", CLIENT_POD, "--"]
