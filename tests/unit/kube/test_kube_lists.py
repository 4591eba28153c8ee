"""Lists of a fleet: without managedFields, and one page after the other."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st
from tailbound.kube.errors import Transient
from tailbound.kube.informer import Informer
from tailbound.kube.objects import without_managed_fields
from tailbound.kube.protocol import KubeClient, Listing, WatchEvent
from tailbound.kube.resources import PODS
from tailbound.kube.store import ObjectStore

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


@given(before=METADATA, after=METADATA, spec=METADATA, managers=st.lists(METADATA, max_size=3))
def test_managed_fields_are_cut_out_of_the_text_and_nothing_else_is(
    before: dict[str, Any], after: dict[str, Any], spec: dict[str, Any], managers: list[Any]
) -> None:
    lists = {**spec, "lists": [list(each) for each in spec.items()]}
    stored = {**before, "managedFields": managers, **after}
    page = {"items": [{"metadata": stored, "spec": lists}, {"metadata": {"managedFields": managers}}]}
    text = json.dumps(page, separators=(",", ":")).encode()
    without = {"items": [{"metadata": {**before, **after}, "spec": lists}, {"metadata": {}}]}
    assert json.loads(without_managed_fields(text)) == without


def pod(name: str, version: int) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "ns", "name": name, "uid": f"uid-{name}", "resourceVersion": str(version)}
    }


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
    running = asyncio.create_task(informer.run())
    async with asyncio.timeout(10):
        await informer.synced.wait()
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    assert seen == [["gone", "kept", "new"]] * 2
    assert sorted(each["metadata"]["name"] for each in store) == ["kept", "last", "new"]
