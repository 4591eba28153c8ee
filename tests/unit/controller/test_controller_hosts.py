"""What the operator decides on hosts as services and HostGrants come and go."""

from typing import Any

import pytest
from tailbound.api.hosts import HostGrantSpec, HostPolicy, permits
from tailbound.controller.stores import Stores
from tailbound.kube.resources import HOST_GRANTS, INFERENCE_SERVICES

HOST = "a.example.com"


class World:
    """The stores of an operator; `concerned` are the services that were enqueued since it was read last."""

    def __init__(self, policy: HostPolicy = HostPolicy.OPEN) -> None:
        self._enqueued: set[tuple[str, str]] = set()
        self._version = 0
        self.stores = Stores(self._enqueued.add, host_policy=policy)

    def service(self, namespace: str, day: int, *states: str, **spec: Any) -> None:
        """A service that claims HOST, created on this day, with these recorded states of it."""
        status = {"hosts": [{"host": HOST, "state": state} for state in states]} if states else {}
        self._put(
            INFERENCE_SERVICES,
            {
                "apiVersion": "tailbound.dev/v1alpha1",
                "kind": "InferenceService",
                "metadata": {
                    "namespace": namespace,
                    "name": "s",
                    "uid": f"{namespace}-{day}",
                    "creationTimestamp": f"2026-01-{day:02}T00:00:00Z",
                },
                "spec": {"hosts": [HOST], **spec},
                "status": status,
            },
        )

    def grant(self, namespaces: list[str], hosts: list[str]) -> None:
        """The only HostGrant."""
        self._put(
            HOST_GRANTS,
            {
                "apiVersion": "tailbound.dev/v1alpha1",
                "kind": "HostGrant",
                "metadata": {"name": "grant", "uid": "grant"},
                "spec": {"namespaces": namespaces, "hosts": hosts},
            },
        )

    def _put(self, resource: Any, obj: dict[str, Any]) -> None:
        self._version += 1
        obj["metadata"]["resourceVersion"] = str(self._version)
        self.stores.of[resource].upsert(obj)

    def delete(self, namespace: str) -> None:
        store = self.stores.of[INFERENCE_SERVICES]
        found = store.get(namespace, "s")
        assert found is not None
        store.remove(found)

    def states(self, *namespaces: str) -> list[str]:
        return [entry.state for each in namespaces for entry in self.stores.hosts.of((each, "s"))]

    def concerned(self) -> set[str]:
        names = {namespace for namespace, _ in self._enqueued}
        self._enqueued.clear()
        return names


def test_a_claim_that_lost_never_takes_over_from_an_owner_that_is_deleted_and_created_again() -> None:
    world = World()
    world.service("risk", 2)
    world.service("evil", 3)
    assert world.states("risk", "evil") == ["Accepted", "Taken"]
    world.service("risk", 2, "Accepted")
    world.service("evil", 3, "Taken")
    world.delete("risk")
    assert world.states("evil") == ["Taken"]
    world.service("risk", 9)
    assert world.states("risk", "evil") == ["Accepted", "Taken"]


def test_an_older_service_that_adds_a_host_does_not_take_it_from_its_owner() -> None:
    world = World()
    world.service("risk", 5, "Accepted")
    world.service("evil", 1)
    assert world.states("risk", "evil") == ["Accepted", "Taken"]


def test_an_owner_whose_spec_cannot_be_read_keeps_its_hosts() -> None:
    world = World()
    world.service("risk", 5, "Accepted", timeout="never")
    world.service("evil", 1)
    assert world.states("evil") == ["Taken"]


def test_a_service_is_enqueued_when_another_changes_what_it_has() -> None:
    world = World()
    world.service("risk", 2)
    world.concerned()
    world.service("evil", 1)
    assert world.concerned() == {"risk", "evil"}
    world.service("risk", 2, "Taken")
    assert world.concerned() == {"risk"}


def test_grants_take_and_give() -> None:
    world = World(HostPolicy.GRANTED)
    world.service("risk", 2)
    assert world.states("risk") == ["NotGranted"]
    world.concerned()
    world.grant(["risk"], ["*.example.com"])
    assert world.states("risk") == ["Accepted"]
    world.grant(["ads"], ["*.example.com"])
    assert world.states("risk") == ["NotGranted"]
    assert world.concerned() == {"risk"}


@pytest.mark.parametrize(
    ("namespaces", "hosts", "open_", "granted"),
    [
        (["risk"], [HOST], True, True),
        (["*"], [HOST], True, True),
        (["ri*"], ["*"], True, True),
        (["risk"], ["*.example.com"], True, True),
        (["risk"], ["*.com"], True, True),
        (["ads"], [HOST], False, False),
        (["risky*"], ["*.example.com"], False, False),
        (["risk"], ["example.com"], True, False),
        (["risk"], ["*.a.example.com"], True, False),
        (["risk"], ["*.ample.com"], True, False),
    ],
)
def test_what_a_grant_covers(namespaces: list[str], hosts: list[str], open_: bool, granted: bool) -> None:
    grant = HostGrantSpec.model_validate({"namespaces": namespaces, "hosts": hosts})
    found = [permits(policy, [grant], "risk", HOST) for policy in (HostPolicy.OPEN, HostPolicy.GRANTED)]
    assert found == [open_, granted]
