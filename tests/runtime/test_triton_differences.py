"""The same requests to the real Triton server and to this one: where they differ, and why.

`make conformance` sends them to both and writes the table; here the table is checked.
"""

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
import numpy as np

from tests.runtime.process import NAME

TABLE: Final = Path(__file__).with_name("triton_differences.md")

A: Final = {"name": "a", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}
B: Final = {"name": "b", "datatype": "FP32", "shape": [1, 4], "data": [0.5, 0.25, 2, -1]}
RAW: Final = np.array([1, 2, 3, 4], np.float32).tobytes()


@dataclass(frozen=True)
class Case:
    """One request."""

    name: str
    content: bytes = b""
    path: str = f"/v2/models/{NAME}/infer"
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict)

    def asked(self, base: str) -> tuple[int, Any]:
        """What the server there answers."""
        response = httpx.request(self.method, base + self.path, content=self.content, headers=self.headers)
        return normal(response)


def infer(name: str, *, a: Any = (), b: Any = (), **members: Any) -> Case:
    """A request in JSON, with these members changed."""
    body = {"inputs": [{**A, **dict(a)}, {**B, **dict(b)}], **members}
    return Case(name, json.dumps(body).encode())


def get(name: str, path: str) -> Case:
    """A request without a body."""
    return Case(name, path=path, method="GET")


def binary(name: str, *, more: bytes = b"", shift: int = 0, size: int = 16) -> Case:
    """A request with binary tensors both ways."""
    tensors = [
        {"name": n, "datatype": "FP32", "shape": [1, 4], "parameters": {"binary_data_size": size}}
        for n in "ab"
    ]
    head = json.dumps({"inputs": tensors, "parameters": {"binary_data_output": True}}).encode()
    length = {"inference-header-content-length": str(len(head) + shift)}
    return Case(name, head + RAW + RAW + more, headers=length)


def packed(encoding: str, content: bytes) -> bytes:
    packer = zlib.compressobj(wbits=zlib.MAX_WBITS | (16 if encoding == "gzip" else 0))
    return packer.compress(content) + packer.flush()


ONE: Final = json.dumps({"inputs": [A, B]}).encode()
MISTAKE: Final = "the client's mistake is its own, and counts against no server"
BODY: Final = "health has a JSON body, which KServe's client reads"
REASONS: Final = {
    **dict.fromkeys(("liveness", "readiness", "model readiness"), BODY),
    "server metadata with a slash": "the protocol writes the path both ways",
    "readiness of an unknown model": "what is not there is not found",
    **dict.fromkeys(
        (
            *("a number as id", "a shape of -1", "a shape as text", "a shape with a float"),
            *("too little data", "too much data", "null in the data", "text in the data"),
            *("truth in the data", "no data", "a body that is no JSON", "a list as body"),
        ),
        MISTAKE,
    ),
    "ragged data": "data is flat or nested as its shape says; anything else is a mistake",
    "zero rows": "no rows have no answers, which is no error where the model takes any number",
    "NaN as a bare word": 'JSON has no such word: the string "NaN" and binary tensors carry it',
    "a body in br": "HTTP names 415 for an encoding that is not supported",
}
CASES: Final = (
    get("liveness", "/v2/health/live"),
    get("readiness", "/v2/health/ready"),
    get("server metadata", "/v2"),
    get("server metadata with a slash", "/v2/"),
    get("model metadata", f"/v2/models/{NAME}"),
    get("model readiness", f"/v2/models/{NAME}/ready"),
    get("metadata of version 1", f"/v2/models/{NAME}/versions/1"),
    get("metadata of version 2", f"/v2/models/{NAME}/versions/2"),
    get("metadata of an unknown model", "/v2/models/other"),
    get("readiness of an unknown model", "/v2/models/other/ready"),
    get("configuration", f"/v2/models/{NAME}/config"),
    get("statistics", f"/v2/models/{NAME}/stats"),
    get("a path that is none", "/v1/nothing"),
    Case("index of the repository", b"{}", "/v2/repository/index"),
    infer("one row"),
    infer("an id", id="a-1"),
    infer("an empty id", id=""),
    infer("a number as id", id=7),
    infer("all outputs by an empty list", outputs=[]),
    infer("one output", outputs=[{"name": "product"}]),
    infer("an unknown output", outputs=[{"name": "z"}]),
    infer("an unknown input", a={"name": "z"}),
    infer("an input twice", b={"name": "a"}),
    infer("another datatype", a={"datatype": "FP64"}),
    infer("a datatype in lower case", a={"datatype": "fp32"}),
    infer("a shape of -1", a={"shape": [-1, 4]}),
    infer("a shape as text", a={"shape": ["1", 4]}),
    infer("a shape with a float", a={"shape": [1.0, 4]}),
    infer("another width", a={"shape": [1, 3], "data": [1, 2, 3]}),
    infer("another rank", a={"shape": [4]}),
    infer("too little data", a={"data": [1, 2, 3]}),
    infer("too much data", a={"data": [1, 2, 3, 4, 5]}),
    infer("nested data", a={"data": [[1, 2, 3, 4]]}),
    infer("ragged data", a={"data": [[1, 2], [3, 4]]}),
    infer("null in the data", a={"data": [1, None, 3, 4]}),
    infer("text in the data", a={"data": [1, "1.5", 3, 4]}),
    infer("truth in the data", a={"data": [1, True, 3, 4]}),
    infer("no data", a={"data": None}),
    infer("zero rows", a={"shape": [0, 4], "data": []}, b={"shape": [0, 4], "data": []}),
    infer("NaN as a bare word", a={"data": [1, float("nan"), 3, 4]}),
    infer("inputs missing", inputs=[]),
    infer("rows of two", a={"shape": [2, 4], "data": [1] * 8}, b={"shape": [2, 4], "data": [2] * 8}),
    infer("rows that disagree", a={"shape": [2, 4], "data": [1] * 8}),
    Case("no body"),
    Case("a body that is no JSON", b"{"),
    Case("a list as body", b"[]"),
    Case("a body in gzip", packed("gzip", ONE), headers={"content-encoding": "gzip"}),
    Case("a body in deflate", packed("deflate", ONE), headers={"content-encoding": "deflate"}),
    Case("a body in br", ONE, headers={"content-encoding": "br"}),
    Case("a body in gzip that is none", ONE, headers={"content-encoding": "gzip"}),
    Case("a form", ONE, headers={"content-type": "application/x-www-form-urlencoded"}),
    Case("version 1", ONE, f"/v2/models/{NAME}/versions/1/infer"),
    Case("version 2", ONE, f"/v2/models/{NAME}/versions/2/infer"),
    Case("an unknown model", ONE, "/v2/models/other/infer"),
    binary("binary tensors"),
    binary("bytes after the last binary tensor", more=b"x"),
    binary("a header that is longer than the body", shift=10_000),
    binary("a binary size that is too small", size=12),
    binary("a binary size that is too large", size=20),
    Case("a header length that is no number", ONE, headers={"inference-header-content-length": "x"}),
    Case("a negative header length", ONE, headers={"inference-header-content-length": "-1"}),
)


def normal(response: httpx.Response) -> tuple[int, Any]:
    """What matters of an answer: of an error its status alone, as the words are each server's own."""
    if response.status_code != 200 or not response.content:
        return response.status_code, None
    length = response.headers.get("inference-header-content-length")
    if length is None:
        body = response.json()
        outputs = body.get("outputs") if isinstance(body, dict) else None
        return 200, (body.get("id"), outputs) if outputs is not None else "JSON"
    head = json.loads(response.content[: int(length)])
    return 200, (head["outputs"], response.content[int(length) :])


def said(answer: tuple[int, Any]) -> str:
    status, body = answer
    return f"{status}" if body is None else f"{status} with a body"


def test_the_table_has_the_cases_that_differ_with_their_reasons() -> None:
    lines = [line.split(" | ") for line in TABLE.read_text().splitlines()[2:]]
    assert [(line[0].removeprefix("| "), line[3].removesuffix(" |")) for line in lines] == [
        (case.name, REASONS[case.name]) for case in CASES if case.name in REASONS
    ]
