"""The helper pods of a cluster that runs already are those of the images of today."""

from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException
from kubernetes.dynamic.exceptions import UnprocessibleEntityError

from e2e.scenarios.library import pods
from e2e.scenarios.library.api import Object


class Pods:
    """An API server that lets no environment of a pod be changed. made: the name of each pod in turn."""

    def __init__(self) -> None:
        self.stored: dict[str, Object] = {}
        self.made: list[str] = []

    def apply(self, body: Object) -> None:
        name = body["metadata"]["name"]
        if body["kind"] != "Pod":
            return
        if name not in self.stored:
            self.made.append(name)
        elif self.stored[name]["spec"] != body["spec"]:
            raise UnprocessibleEntityError(ApiException(status=422))
        self.stored[name] = {**body, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}

    def delete(self, kind: str, name: str, *_: Any, **__: Any) -> None:
        del self.stored[name]

    def get(self, kind: str, name: str, *_: Any) -> Object | None:
        return self.stored.get(name)

    def need(self, kind: str, name: str, *_: Any) -> Object:
        return self.stored[name]


@pytest.mark.parametrize(
    ("before", "now", "replaced"),
    [
        ({"client": "1", "model-store": "1"}, {"client": "1", "model-store": "1"}, []),
        ({"client": "1", "model-store": "1"}, {"client": "2", "model-store": "1"}, ["client"]),
        ({}, {"client": "1", "model-store": "1"}, ["model-store", "client"]),
    ],
    ids=["same", "client-changed", "not-known-before"],
)
def test_a_helper_pod_is_replaced_if_its_image_has_another_content(
    before: dict[str, str], now: dict[str, str], replaced: list[str]
) -> None:
    api: Any = Pods()
    pods.deploy(api, "localhost", "e2e", before)
    assert api.made == ["model-store", "client"]
    pods.deploy(api, "localhost", "e2e", now)
    assert api.made[2:] == replaced
