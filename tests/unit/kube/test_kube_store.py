"""The store: whatever the order of watches, lists and responses, it ends at the newest state."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tailbound.kube.store import ObjectStore
from tailbound.objects.fields import Object


def obj(name: str, version: int, uid: str = "", **labels: str) -> dict[str, Any]:
    meta = {"namespace": "ns", "name": name, "uid": uid or f"uid-{name}", "resourceVersion": str(version)}
    return {"metadata": {**meta, "labels": labels}}


def versions(store: ObjectStore) -> dict[str, str]:
    return {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in store}


# Of one object: what comes in, with its uid if it has another one, and with ! if it changes nothing; and the
# version that is there in the end, if any. An `at` is the version of a list, asked for after all before it.
NEWS: dict[str, tuple[str, str | None]] = {
    "newer-version-wins-and-older-is-ignored": ("put 9, put 8!, put 10", "10"),
    "late-news-of-a-deleted-object": ("put 5, remove 8, put 7!", None),
    "left-the-selector-and-returned": ("put 5, remove 8, put 9", "9"),
    "left-the-selector-and-is-read-in-the-state-in-which-it-left": ("put 5, remove 8, put 8", "8"),
    "late-news-of-the-last-state-of-what-is-gone": ("put 5, gone 0 another!, gone 0, put 5!", None),
    "deletion-of-a-former-object": ("put 9 new, remove 12 old!", "9"),
    "late-deletion-of-the-same-object": ("put 9, remove 8!", "9"),
    "a-backup-was-restored": ("put 9, at 5, put 4, put 9, put 8!", "9"),
    "a-backup-was-restored-in-which-it-is-not": ("put 9, at 5, remove 6", None),
    "a-backup-was-restored-in-which-it-still-is": ("put 5, remove 8, at 6, put 5", "5"),
    "a-list-that-is-as-new-as-what-is-known": ("put 9, at 9, put 4!", "9"),
}


@pytest.mark.parametrize(("news", "version"), NEWS.values(), ids=NEWS)
def test_the_newest_state_stays(news: str, version: str | None) -> None:
    store = ObjectStore()
    for each in news.split(", "):
        what, number, *uid = each.rstrip("!").split()
        about = obj("a", int(number), *uid)
        if what == "at":
            store.overtake(store.newest, number)
            continue
        if what == "gone":
            changed = store.gone("ns", "a", about["metadata"]["uid"])
        else:
            changed = store.upsert(about) if what == "put" else store.remove(about)
        assert changed is not each.endswith("!"), each
    assert versions(store) == ({"a": version} if version else {})


def test_full_list_removes_what_it_lacks_but_not_what_is_newer_than_it() -> None:
    store = ObjectStore()
    for each in (obj("kept", 1), obj("gone", 2), obj("younger", 30)):
        store.upsert(each)
    assert store.replace([obj("kept", 1), obj("found", 7)], "20") == 2
    assert versions(store) == {"kept": "1", "younger": "30", "found": "7"}


def test_listeners_hear_differences_only() -> None:
    heard: list[tuple[Object | None, Object | None]] = []
    store = ObjectStore(lambda old, new: heard.append((old, new)))
    first, second = obj("a", 1), obj("a", 2)
    store.upsert(first)
    store.upsert(first)
    store.upsert(second)
    store.remove(second)
    store.remove(second)
    assert heard == [(None, first), (first, second), (second, None)]


def test_index_follows_changes() -> None:
    store = ObjectStore(index=lambda each: each["metadata"]["labels"].values())
    store.upsert(obj("b", 1, service="x"))
    store.upsert(obj("a", 2, service="x"))
    assert [each["metadata"]["name"] for each in store.indexed("x")] == ["a", "b"]
    store.upsert(obj("a", 3, service="y"))
    store.remove(obj("b", 4))
    assert store.indexed("x") == ()
    assert [each["metadata"]["name"] for each in store.indexed("y")] == ["a"]


def test_managed_fields_are_not_kept() -> None:
    store = ObjectStore()
    heavy = obj("a", 1)
    heavy["metadata"]["managedFields"] = [{"manager": "somebody"}]
    store.upsert(heavy)
    assert "managedFields" not in next(iter(store))["metadata"]
    assert heavy["metadata"]["managedFields"], "the object that was given is not changed"


HISTORY = [
    ("put", obj("a", 1)),
    ("put", obj("a", 3)),
    ("gone", obj("a", 5)),
    ("put", obj("a", 7, uid="again")),
]


@pytest.mark.parametrize("order", list(itertools.permutations(range(len(HISTORY)))))
def test_every_order_of_arrival_ends_the_same(order: tuple[int, ...]) -> None:
    store = ObjectStore()
    for index in order:
        what, each = HISTORY[index]
        if what == "put":
            store.upsert(each)
        else:
            store.remove(each)
    assert versions(store) == {"a": "7"}


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 50), st.booleans())))
def test_the_index_always_equals_the_objects(changes: list[tuple[str, int, bool]]) -> None:
    store = ObjectStore(index=lambda each: (each["metadata"]["name"],))
    for name, version, gone in changes:
        if gone:
            store.remove(obj(name, version))
        else:
            store.upsert(obj(name, version))
    assert [each for name in "abc" for each in store.indexed(name)] == sorted(
        store, key=lambda each: str(each["metadata"]["name"])
    )


def test_list_of_one_namespace_says_nothing_about_the_others() -> None:
    store = ObjectStore()
    elsewhere = obj("other", 3)
    elsewhere["metadata"]["namespace"] = "elsewhere"
    for each in (obj("gone", 2), elsewhere):
        store.upsert(each)
    assert store.replace([], "20", "ns") == 1
    assert versions(store) == {"other": "3"}
