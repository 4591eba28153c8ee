"""Lists of a fleet: without managedFields, and one page after the other."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kubernetes.aio.client.configuration import Configuration
from tailbound.kube.aio import AioCluster
from tailbound.kube.errors import Transient
from tailbound.kube.informer import Informer
from tailbound.kube.objects import without_managed_fields
from tailbound.kube.protocol import KubeClient, Listing, WatchEvent
from tailbound.kube.resources import PODS
from tailbound.kube.sharing import EqualParts
from tailbound.kube.store import ObjectStore

from tests.support.effort import effort
from tests.support.tasks import beside

HOSTILE = (
    '"managedFields":[',
    ',"managedFields":[]',
    "managedFields",
    '\\"managedFields":[1]',
    "]",
    "\\",
    '"',
)
TEXTS = st.sampled_from(HOSTILE) | st.text(max_size=8)
NAMES = TEXTS.filter(lambda name: name != "managedFields")
FIELDS = st.recursive(
    TEXTS | st.none() | st.integers() | st.booleans(),
    lambda inner: st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=8,
)
METADATA = st.dictionaries(NAMES, FIELDS, max_size=3)


@settings(max_examples=effort(20, 200))
@given(before=METADATA, after=METADATA, spec=METADATA, managers=st.lists(METADATA, max_size=3))
@example(before={}, after={}, spec={}, managers=[{"manager": "a}],"}])
@example(before={"name": "a"}, after={"uid": "b"}, spec={}, managers=[{'k:{"name":"]}"}': {}}])
def test_nothing_but_managed_fields_is_cut_out_of_a_text(
    before: dict[str, Any], after: dict[str, Any], spec: dict[str, Any], managers: list[Any]
) -> None:
    lists = {**spec, "lists": [list(each) for each in spec.items()]}
    stored = {**before, "managedFields": managers, **after}
    page = {"items": [{"metadata": stored, "spec": lists}, {"metadata": {"managedFields": managers}}]}
    text = without_managed_fields(json.dumps(page, separators=(",", ":")).encode())
    found = json.loads(text)
    # Where their end is in doubt they are still there.
    assert {each["metadata"].pop("managedFields", None) in (None, managers) for each in found["items"]} == {
        True
    }
    assert found == {"items": [{"metadata": {**before, **after}, "spec": lists}, {"metadata": {}}]}


@pytest.mark.parametrize("place", range(3))
def test_managed_fields_as_clients_leave_them_are_cut_out(place: int) -> None:
    fields: dict[str, Any] = {"f:spec": {'k:{"name":"server"}': {".": {}, "f:args": {}}, "v:[1]}]": {}}}
    manager = {"manager": "kubectl}]", "operation": "Apply", "fieldsV1": fields}
    others = [("labels", {"a": ",managedFields"}), ("name", "a")]
    meta = [*others[:place], ("managedFields", [manager, manager]), *others[place:]]
    page = {"items": [{"metadata": dict(meta)}, {"metadata": {"name": "b"}}]}
    text = without_managed_fields(json.dumps(page, separators=(",", ":")).encode())
    assert json.loads(text) == {"items": [{"metadata": dict(others)}, {"metadata": {"name": "b"}}]}


@given(items=st.lists(st.dictionaries(NAMES, FIELDS | st.lists(FIELDS | st.floats(allow_nan=False)))))
@settings(max_examples=effort(20, 200))
def test_equal_parts_of_a_page_are_in_memory_once(items: list[dict[str, Any]]) -> None:
    """JSON tells 1, 1.0 and true apart, which are equal in Python."""
    text, parts = json.dumps(items), EqualParts()
    first, second = ([parts.shared(item) for item in json.loads(text)] for _ in range(2))
    assert json.dumps(first) == json.dumps(second) == text
    held = [(one[name], other[name]) for one, other in zip(first, second, strict=True) for name in one]
    assert all(one is other for one, other in held if isinstance(one, dict | list | str))


def pod(name: str, version: int) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "ns", "name": name, "uid": f"uid-{name}", "resourceVersion": str(version)}
    }


async def test_of_pages_that_come_together_one_is_parsed_in_a_turn_of_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without that a start with a large fleet holds up the loop for as long as a page of each kind takes."""
    cluster, came, turn, parsed = AioCluster(Configuration()), asyncio.Event(), 0, list[int]()

    async def text(*_: Any) -> bytes:
        await came.wait()
        return b'{"metadata":{"resourceVersion":"1"},"items":[]}'

    async def take_list() -> None:
        async for _ in cluster.pages(PODS):
            parsed.append(turn)

    monkeypatch.setattr(cluster, "_text", text)
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        for _ in range(5):
            group.create_task(take_list())
        came.set()
        while len(parsed) < 5:
            await asyncio.sleep(0)
            turn += 1
    await cluster.close()
    assert len(set(parsed)) == 5


async def test_a_list_enters_by_pages_and_only_a_whole_one_tells_what_is_gone() -> None:
    store, seen = ObjectStore(), list[list[str]]()
    for name in ("gone", "kept"):
        store.upsert(pod(name, 1))

    class Api:
        lists = 0

        async def pages(self, *_: Any) -> AsyncIterator[Listing]:
            self.lists += 1
            yield Listing((pod("kept", 1), pod("new", 7)), "9")
            seen.append(sorted(each["metadata"]["name"] for each in store))
            if self.lists == 1:
                raise Transient("the second page is not there")
            yield Listing((pod("last", 8),), "9")

        async def watch(self, *_: Any, **__: Any) -> AsyncIterator[WatchEvent]:
            await asyncio.Event().wait()
            yield WatchEvent("BOOKMARK", {})

    informer = Informer(cast(KubeClient, Api()), PODS, store, jitter=lambda: -0.5)
    async with beside(informer.run()), asyncio.timeout(10):
        await informer.synced.wait()
    assert seen == [["gone", "kept", "new"]] * 2
    assert sorted(each["metadata"]["name"] for each in store) == ["kept", "last", "new"]


async def test_what_is_known_gives_way_to_a_backup_that_was_restored() -> None:
    """Versions start again from that of the backup: what is known has greater ones than all that comes."""
    store, restored = ObjectStore(), asyncio.Event()

    class Api:
        lists = iter(
            (
                (Listing((pod("kept", 80), pod("younger", 90)), "99"),),
                (Listing((pod("kept", 40),), "50"), Listing((pod("older", 41),), "50")),
            )
        )

        async def pages(self, *_: Any) -> AsyncIterator[Listing]:
            for page in next(self.lists):
                yield page

        async def watch(self, _resource: Any, version: str, *_: Any, **__: Any) -> AsyncIterator[WatchEvent]:
            if version == "99":
                yield WatchEvent("BOOKMARK", {"metadata": {"resourceVersion": "50"}})
            yield WatchEvent("MODIFIED", pod("older", 51))
            restored.set()
            await asyncio.Event().wait()

    async with beside(Informer(cast(KubeClient, Api()), PODS, store).run()), asyncio.timeout(10):
        await restored.wait()
    found = {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in store}
    assert found == {"kept": "40", "older": "51"}
