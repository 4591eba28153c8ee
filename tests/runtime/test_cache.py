"""Answers that are given again: exactly those, within their bytes, and never those of another version."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tailbound_runtime import cache as cache_module
from tailbound_runtime.batch import UNBATCHED, Batching, Mode
from tailbound_runtime.cache import ENTRY_BYTES, MOST_INPUT_BYTES, Cache, CachingThread, digest_of
from tailbound_runtime.engine import Engine
from tailbound_runtime.errors import ModelInputError
from tailbound_runtime.metrics import Metrics
from tailbound_runtime.refused import Refused
from tailbound_runtime.signature import InferRequest

from tests.runtime import models
from tests.runtime.doubling import REFUSED, Doubling
from tests.runtime.process import serving
from tests.runtime.test_repository import version
from tests.runtime.test_worker import gone, later, request, unbroken, waiting


def caching(model: Doubling, cache: Cache, metrics: Metrics, batching: Batching = UNBATCHED) -> CachingThread:
    return CachingThread(cast(Engine, model), batching, 100, metrics, unbroken, cache)


def counted(metrics: Metrics) -> tuple[float, float]:
    values = {sample.name: sample.value for family in metrics.collect() for sample in family.samples}
    return values["tailbound_runtime_cache_hits_total"], values["tailbound_runtime_cache_misses_total"]


TENSORS = st.sampled_from(
    [
        np.array([[0.0, 1.0]], np.float32),
        np.array([[-0.0, 1.0]], np.float32),
        np.array([[0.0], [1.0]], np.float32),
        np.array([[np.nan, 1.0]], np.float32),
        np.array([[0, 1]], np.int64),
        np.array([[0, 0, 128, 63, 0, 0, 0, 0]], np.uint8),
        np.array([["a", "b"]], np.object_),
        np.array([["a', 'b"]], np.object_),
        np.array([["ab", ""]], np.object_),
    ]
)
REQUESTS = st.builds(
    lambda x, y, outputs: InferRequest(None, {"x": x, "y": y}, outputs, 1),
    TENSORS,
    TENSORS,
    st.sampled_from([("p",), ("q",), ("p", "q"), ("q", "p")]),
)


@given(REQUESTS, REQUESTS)
def test_requests_are_the_same_only_if_outputs_and_tensors_are_bit_for_bit(
    one: InferRequest, other: InferRequest
) -> None:
    def parts(asked: InferRequest) -> list[Any]:
        arrays = [asked.inputs["x"], asked.inputs["y"]]
        contents = [a.tolist() if a.dtype.hasobject else a.tobytes() for a in arrays]
        return [asked.outputs, [(a.dtype, a.shape) for a in arrays], contents]

    assert (digest_of(one) == digest_of(other)) == (parts(one) == parts(other))
    named = replace(other, id="7", priority=1, binary=frozenset(other.outputs))
    assert digest_of(named) == digest_of(other)


async def test_what_was_answered_is_not_run_again_and_what_failed_is(monkeypatch: pytest.MonkeyPatch) -> None:
    digested: list[InferRequest] = []
    digest = cache_module._digest

    def noted(asked: InferRequest) -> bytes | None:
        digested.append(asked)
        return digest(asked)

    monkeypatch.setattr(cache_module, "_digest", noted)
    model, metrics, cache = Doubling(), Metrics(), Cache(10_000)
    thread = caching(model, cache, metrics, Batching(Mode.DYNAMIC, 8, (), 0))
    shared = [request([number]) for number in range(3)]
    answers = await asyncio.gather(*await waiting(thread, *shared))
    runs = len(model.sizes)
    for asked, answer in zip(shared, answers, strict=True):
        again = await thread.run(asked, later())
        assert again[0].tolist() == answer[0].tolist()
        assert again[0].base is None, "a batch is kept whole for one of its rows"
        with pytest.raises(ValueError, match="read-only"):
            again[0][:] = 0
    assert (len(model.sizes), counted(metrics)) == (runs, (3, 3))
    for _ in range(2):
        with pytest.raises(ModelInputError):
            await thread.run(request([REFUSED]), later())
    assert len(digested) == len(shared) + 2, "each once, whether it is found or not"
    model.free.clear()
    (left,) = await waiting(thread, request([9]))
    await gone(left)
    model.free.set()
    assert (await thread.run(request([9]), later()))[0].tolist() == [[18]]
    assert counted(metrics)[0] == 3
    thread.close()
    assert cache.used == 0


async def test_two_versions_share_the_bytes_and_no_answer() -> None:
    cache = Cache(10_000)
    first, second = (caching(Doubling(), cache, Metrics()) for _ in range(2))
    asked = request([1])
    await first.run(asked, later())
    digest = digest_of(asked) or b""
    assert cache.get(second._owner, digest) is None
    cache.put(second._owner, digest, [np.array([7])])
    found = cache.get(first._owner, digest)
    assert found is not None
    assert found[0].tolist() == [[2]]
    first.close()
    assert cache.get(first._owner, digest) is None
    assert cache.get(second._owner, digest) is not None
    second.close()


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3 * ENTRY_BYTES), st.booleans()), max_size=40))
def test_the_bytes_are_bounded_and_the_least_used_goes_first(
    steps: Sequence[tuple[int, int, bool]],
) -> None:
    """Each step puts an answer of so many bytes, or asks for it; a plain list says what is left."""
    limit = 5 * ENTRY_BYTES
    cache, kept = Cache(limit), dict[bytes, int]()
    for number, size, puts in steps:
        digest = bytes([number])
        if puts and size + ENTRY_BYTES <= limit:
            kept.pop(digest, None)
            kept[digest] = size + ENTRY_BYTES
            while sum(kept.values()) > limit:
                del kept[next(iter(kept))]
        elif not puts and digest in kept:
            kept[digest] = kept.pop(digest)
        if puts:
            cache.put(cache, digest, [np.zeros(size, np.uint8)])
        else:
            assert (cache.get(cache, digest) is not None) == (digest in kept)
        assert cache.used == sum(kept.values()) <= limit


def test_what_is_put_after_its_owner_is_gone_is_nobodys_answer() -> None:
    cache, digest = Cache(10_000), b"asked"
    for _ in range(100):  # objects that go leave their address to the next ones
        owner = object()
        cache.forget(owner)
        assert cache.get(owner, digest) is None
        cache.put(owner, digest, [np.array([8])])
        del owner


class Unread(str):
    """A text that nobody may look at."""

    def __sizeof__(self) -> int:
        raise AssertionError("it was counted")

    def __repr__(self) -> str:
        raise AssertionError("it was read")


@pytest.mark.parametrize(
    "large",
    [
        np.zeros((1, MOST_INPUT_BYTES + 1), np.uint8),
        np.array([["x" * (MOST_INPUT_BYTES + 1)]], np.object_),
        np.array([[Unread("x")] * (MOST_INPUT_BYTES // 8 + 1)], np.object_),
    ],
    ids=["numbers", "one long text", "many texts"],
)
def test_inputs_that_take_long_to_look_at_are_not_remembered(large: Any) -> None:
    asked = InferRequest(None, {"x": large}, ("y",), 1)
    assert digest_of(asked) is None
    refused = Refused()
    refused.add(InferRequest(None, {"x": np.zeros((1, 1))}, ("y",), 1), "another one", 0)
    refused.add(asked, "too long", 0)
    assert refused.why(asked, 0) is None


def test_a_server_counts_hits_and_forgets_them_with_a_new_version(tmp_path: Path) -> None:
    body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [-2.5]}]}
    models.unary(version(tmp_path, "m", "1"), "Neg")
    with serving(
        tmp_path,
        model_path="",
        model_repository=str(tmp_path),
        model_control="explicit",
        cache_bytes="100000",
    ) as server:
        first, again = (server.infer({**body, "id": each}).json() for each in ("a", "b"))
        assert (first["outputs"], again["id"]) == (again["outputs"], "b")
        series = 'tailbound_runtime_cache_hits_total{model="m",model_version="1"}'
        assert server.metric(series) == 1
        models.unary(version(tmp_path, "m", "2"), "Exp")
        assert server.client.post("/v2/repository/models/m/load").status_code == 200
        assert server.infer(body).json()["outputs"][0]["data"] == pytest.approx([np.exp(-2.5)])
