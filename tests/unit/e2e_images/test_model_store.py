"""The model store answers as an honest server does, and misbehaves exactly as told."""

import hashlib
from collections.abc import AsyncIterator

import pytest
from aiohttp import ClientPayloadError, ClientSession
from aiohttp.test_utils import TestClient, TestServer
from aiohttp.web import Application, Request

from e2e.images.model_store.server import HUGE_CONTENT_LENGTH, application

CONTENT = bytes(range(256)) * 1024
ETAG = f'"{hashlib.sha256(CONTENT).hexdigest()}"'
Client = TestClient[Request, Application]


@pytest.fixture
async def store() -> AsyncIterator[Client]:
    async with TestClient(TestServer(application({"model.onnx": CONTENT}))) as client:
        yield client


@pytest.mark.parametrize(
    ("headers", "status", "expected", "content_range"),
    [
        ({}, 200, CONTENT, None),
        ({"Range": "bytes=10-19"}, 206, CONTENT[10:20], "bytes 10-19/262144"),
        ({"Range": "bytes=262100-"}, 206, CONTENT[262100:], "bytes 262100-262143/262144"),
        ({"Range": "bytes=-5"}, 206, CONTENT[-5:], "bytes 262139-262143/262144"),
        ({"Range": "bytes=262144-"}, 416, b"", "bytes */262144"),
        ({"Range": "bytes=10-19", "If-Range": ETAG}, 206, CONTENT[10:20], "bytes 10-19/262144"),
        ({"Range": "bytes=10-19", "If-Range": '"old"'}, 200, CONTENT, None),
    ],
)
async def test_answers_ranges(
    store: Client, headers: dict[str, str], status: int, expected: bytes, content_range: str | None
) -> None:
    async with store.get("/model.onnx", headers=headers) as response:
        assert response.status == status
        assert await response.read() == expected
        assert response.headers.get("Content-Range") == content_range
        assert response.headers["ETag"] == ETAG


@pytest.mark.parametrize(("fault", "status"), [("not-found", 404), ("forbidden", 403), ("error", 500)])
async def test_a_fault_holds_until_it_is_ended(store: Client, fault: str, status: int) -> None:
    await store.post("/_faults", json={"name": "model.onnx", "fault": fault})
    assert (await store.get("/model.onnx")).status == status
    await store.post("/_faults", json={"name": "model.onnx", "fault": "none"})
    assert (await store.get("/model.onnx")).status == 200


async def test_a_fault_in_the_query_holds_for_one_request(store: Client) -> None:
    assert (await store.get("/model.onnx?fault=forbidden")).status == 403
    assert (await store.get("/model.onnx")).status == 200


async def test_a_truncated_download_breaks_after_half(store: Client) -> None:
    async with store.get("/model.onnx?fault=truncate") as response:
        assert response.content_length == len(CONTENT)
        with pytest.raises(ClientPayloadError):
            await response.read()


async def test_a_huge_file_is_announced(store: Client) -> None:
    async with store.head("/model.onnx?fault=huge") as response:
        assert response.headers["Content-Length"] == str(HUGE_CONTENT_LENGTH)


async def test_wrong_bytes_have_the_right_size(store: Client) -> None:
    async with store.get("/model.onnx?fault=wrong-bytes") as response:
        body = await response.read()
    assert len(body) == len(CONTENT)
    assert body != CONTENT


async def test_an_unknown_fault_is_refused_by_name(store: Client) -> None:
    async with store.post("/_faults", json={"name": "model.onnx", "fault": "flood"}) as response:
        assert response.status == 400
        assert "'flood' is unknown; use one of: none, not-found" in await response.text()


async def test_uploaded_files_are_served_and_requests_are_told(store: Client) -> None:
    assert (await store.get("/new.onnx")).status == 404
    assert (await store.put("/new.onnx", data=b"abc")).status == 201
    async with store.get("/new.onnx", headers={"Range": "bytes=1-"}) as response:
        assert await response.read() == b"bc"
    requests = await (await store.get("/_requests")).json()
    assert requests == [
        {"name": "new.onnx", "range": None, "status": 404},
        {"name": "new.onnx", "range": "bytes=1-", "status": 206},
    ]


async def test_a_huge_download_ends_by_a_broken_connection(store: Client) -> None:
    async with ClientSession() as session, session.get(store.make_url("/model.onnx?fault=huge")) as response:
        with pytest.raises(ClientPayloadError):
            await response.read()
