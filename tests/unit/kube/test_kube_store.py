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


def test_newer_version_wins_and_older_is_ignored() -> None:
    store = ObjectStore()
    assert store.upsert(obj("a", 9))
    assert not store.upsert(obj("a", 10 - 2))
    assert store.upsert(obj("a", 10))
    assert versions(store) == {"a": "10"}


def test_versions_are_compared_as_numbers() -> None:
    store = ObjectStore()
    store.upsert(obj("a", 9))
    assert store.upsert(obj("a", 10))


def test_late_news_of_a_deleted_object_does_not_bring_it_back() -> None:
    store = ObjectStore()
    store.upsert(obj("a", 5))
    assert store.remove(obj("a", 8))
    assert not store.upsert(obj("a", 7))
    assert versions(store) == {}


def test_object_that_left_the_selector_and_returned_is_there() -> None:
    store = ObjectStore()
    store.upsert(obj("a", 5))
    store.remove(obj("a", 8))
    assert store.upsert(obj("a", 9))
    assert versions(store) == {"a": "9"}


def test_object_that_left_the_selector_is_there_when_it_is_read_in_the_state_in_which_it_left() -> None:
    store = ObjectStore()
    store.upsert(obj("a", 5))
    store.remove(obj("a", 8))
    assert store.upsert(obj("a", 8))


def test_object_that_is_known_to_be_gone_does_not_return_with_late_news_of_its_last_state() -> None:
    store = ObjectStore()
    store.upsert(obj("a", 5))
    assert not store.gone("ns", "a", "another")
    assert store.gone("ns", "a", "uid-a")
    assert not store.upsert(obj("a", 5))
    assert versions(store) == {}


def test_deletion_of_a_former_object_leaves_its_successor() -> None:
    store = ObjectStore()
    store.upsert(obj("a", 9, uid="new"))
    assert not store.remove(obj("a", 8, uid="old"))
    assert versions(store) == {"a": "9"}


def test_late_deletion_leaves_a_newer_state_of_the_same_object() -> None:
    store = ObjectStore()
    store.upsert(obj("a", 9))
    assert not store.remove(obj("a", 8))
    assert versions(store) == {"a": "9"}


def test_full_list_removes_what_it_lacks_but_not_what_is_newer_than_it() -> None:
    store = ObjectStore()
    for each in (obj("kept", 1), obj("gone", 2), obj("younger", 30)):
        store.upsert(each)
    assert store.replace([obj("kept", 1), obj("found", 7)], "20") == 2
    assert versions(store) == {"kept": "1", "younger": "30", "found": "7"}


def test_list_taken_before_a_deletion_does_not_bring_the_object_back() -> None:
    store = ObjectStore()
    store.upsert(obj("a", 5))
    store.remove(obj("a", 25))
    assert store.replace([obj("a", 5)], "20") == 0
    assert versions(store) == {}


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
