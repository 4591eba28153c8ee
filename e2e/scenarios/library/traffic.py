"""Requests from a pod in the cluster: single ones, and load that never retries."""

import base64
import json
import subprocess
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from e2e.scenarios.library.api import REQUEST_SECONDS, Api
from e2e.scenarios.library.models import Model, infer_body
from e2e.scenarios.library.tools import Kubectl
from e2e.scenarios.library.waiting import Unmet

POD: Final = "client"
PORT: Final = 8080
GATEWAY_URL: Final = "http://tailbound-gateway.tailbound-system.svc"
PROGRAM: Final = ("client",)
# The longest that any load lasts if nobody ends it.
LONGEST_SECONDS: Final = 600
VALUES: Final = (1.0, 2.0, -3.5)


@dataclass(frozen=True)
class Answer:
    """What came back for one request; status 0 and the error's words if nothing did."""

    status: int
    body: str
    headers: Mapping[str, str]

    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


@dataclass(frozen=True)
class RpcAnswer:
    """The outcome of one gRPC call: its code and, in words, its details; CANCELLED if we ended it."""

    code: str
    details: str
    messages: tuple[bytes, ...]


@dataclass
class Load:
    """A load that runs until it is stopped; `result` is its summary from then on."""

    result: dict[str, Any]

    def assert_flawless(self, at_least: int) -> None:
        """Enough requests were sent, and every one was answered with 200."""
        assert self.result["requests"] >= at_least, f"too few requests to say anything: {self.result}"
        assert self.result["failed"] == 0, f"failed requests: {self.result}"


class Client:
    """The client pod of one namespace."""

    def __init__(self, api: Api, kubectl: Kubectl, namespace: str) -> None:
        self._api, self._kubectl, self._namespace = api, kubectl, namespace

    def _exec(self, *arguments: str) -> list[str]:
        return self._kubectl.command("exec", "-i", "-n", self._namespace, POD, "--", *PROGRAM, *arguments)

    def request(
        self,
        url: str,
        *,
        method: str = "GET",
        body: object = None,
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float = 10,
    ) -> Answer:
        """One request, never repeated."""
        asked = [("method", method), ("url", url), ("timeout", f"{timeout_seconds:g}")]
        asked += [("header", f"{name}:{value}") for name, value in (headers or {}).items()]
        path = f"/api/v1/namespaces/{self._namespace}/pods/{POD}:{PORT}/proxy/request?{urlencode(asked)}"
        content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        answer = json.loads(
            self._api.raw("POST", path, content, timeout_seconds=timeout_seconds + REQUEST_SECONDS)[1]
        )
        return Answer(
            status=answer.get("status", 0),
            body=answer.get("body", answer.get("error", "")),
            headers={name.lower(): value for name, value in answer.get("headers", {}).items()},
        )

    def call(self, url: str, message: bytes, *, answers: int = 2, timeout_seconds: float = 10) -> RpcAnswer:
        """One gRPC call, never repeated: cancelled after so many answers, of which a unary call has one."""
        asked = urlencode({"url": url, "timeout": f"{timeout_seconds:g}", "answers": answers})
        path = f"/api/v1/namespaces/{self._namespace}/pods/{POD}:{PORT}/proxy/call?{asked}"
        answer = json.loads(
            self._api.raw("POST", path, message, timeout_seconds=timeout_seconds + REQUEST_SECONDS)[1]
        )
        messages = tuple(base64.b64decode(each) for each in answer["messages"])
        return RpcAnswer(answer["code"], answer["details"], messages)

    def infer(
        self,
        namespace: str,
        name: str,
        values: Sequence[float] = VALUES,
        *,
        base: str | None = None,
        host: str = "",
    ) -> Answer:
        """One prediction through the service's URL, or through `base` with a Host header."""
        url = f"{base or f'http://{name}.{namespace}.svc'}/v2/models/{name}/infer"
        return self.request(
            url, method="POST", body=infer_body(values), headers={"Host": host} if host else None
        )

    def predicts(self, namespace: str, name: str, model: Model) -> list[float] | Unmet:
        """The prediction, if it is what onnxruntime makes of this model."""
        answer = self.infer(namespace, name)
        if answer.status != 200:
            return Unmet(f"HTTP {answer.status}: {answer.body[:500]}")
        got: list[float] = answer.json()["outputs"][0]["data"]
        expected = model.expected(VALUES)
        return got if got == expected else Unmet(f"predicted {got}, this model predicts {expected}")

    @contextmanager
    def load(
        self,
        namespace: str,
        name: str,
        *,
        workers: int = 2,
        rate: float | None = None,
        rise: tuple[float, float] | None = None,
        new_connections: bool = False,
        timeout_seconds: float = 10,
        within_seconds: float = 10,
        path: str = "",
        body_bytes: int = 0,
        pause_seconds: float = 0,
    ) -> Iterator[Load]:
        """Predictions during the block, with so many a second or else in a closed loop.

        `rise`: the rate to begin with, and the seconds in which it becomes `rate`. `within_seconds`: what
        counts as answered in time. `path`: another path than that of predictions. `body_bytes`: the least
        length of a body, whose last byte is sent after `pause_seconds`. The result is there after the block.
        """
        arguments = [
            f"http://{name}.{namespace}.svc{path or f'/v2/models/{name}/infer'}",
            *(("--workers", str(workers)) if rate is None else ("--rate", f"{rate:g}")),
            *("--timeout", f"{timeout_seconds:g}", "--within", f"{within_seconds:g}"),
            *("--pause", f"{pause_seconds:g}"),
            *(() if rise is None else ("--rise", *(f"{number:g}" for number in rise))),
            *(("--new-connections",) if new_connections else ()),
        ]
        body = json.dumps(infer_body(VALUES)).encode().ljust(body_bytes)
        with self._load_driver(arguments, body, timeout_seconds) as load:
            yield load

    @contextmanager
    def calls(self, url: str, message: bytes, *, rate: float, timeout_seconds: float = 10) -> Iterator[Load]:
        """The same over gRPC: so many calls a second with this message."""
        arguments = (url, "--rate", f"{rate:g}", "--timeout", f"{timeout_seconds:g}")
        with self._load_driver(arguments, message, timeout_seconds) as load:
            yield load

    @contextmanager
    def _load_driver(self, arguments: Sequence[str], body: bytes, timeout_seconds: float) -> Iterator[Load]:
        """The load driver in its pod, with these arguments and this body of its requests."""
        stop_file = f"/tmp/{uuid.uuid4().hex}"
        lasting = ("--body", "--seconds", str(LONGEST_SECONDS), "--stop-file", stop_file)
        load = Load(result={})
        with subprocess.Popen(
            self._exec("load", *arguments, *lasting),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            assert process.stdin is not None
            process.stdin.write(body)
            process.stdin.close()
            process.stdin = None
            try:
                yield load
            finally:
                self._kubectl.run("exec", "-n", self._namespace, POD, "--", "touch", stop_file)
                out, err = process.communicate(timeout=60 + timeout_seconds)
        assert process.returncode == 0, f"the load driver failed: {err.decode(errors='replace')}"
        load.result.update(json.loads(out))
