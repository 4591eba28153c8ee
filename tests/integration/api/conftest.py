"""A plain HTTP client of the API server with our CRDs, so that tests see its very words."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import urllib3
import yaml
from kubernetes.config import new_client_from_config
from tailbound.api.crdgen import RESOURCES

from e2e.cluster import ControlPlane
from e2e.cluster.processes import wait_for

CRDS = Path(__file__).parents[3] / "crds"
TIMEOUT_SECONDS = 20
OLD_KIND, OLD_PLURAL = "OldInferenceService", "oldinferenceservices"
"""Names of the kind whose objects are older than the rules of its CRD."""
_PLURALS = {resource.kind: resource.plural for resource in RESOURCES} | {OLD_KIND: OLD_PLURAL}


@dataclass(frozen=True)
class Answer:
    """Status code and parsed body of a response."""

    code: int
    body: Any
    warnings: tuple[str, ...] = ()

    @property
    def causes(self) -> list[tuple[str, str]]:
        """Field and message of each mistake in a refusal."""
        causes = self.body.get("details", {}).get("causes", [])
        return [(cause.get("field", ""), cause["message"]) for cause in causes]


class Api:
    """Requests to one API server as its administrator."""

    def __init__(self, kubeconfig: Path) -> None:
        client = new_client_from_config(str(kubeconfig))
        self._host: str = client.configuration.host
        self._pool: urllib3.PoolManager = client.rest_client.pool_manager

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        accept: str = "application/json",
        **query: str,
    ) -> Answer:
        """One request. Its query parameters are given by keyword."""
        response = self._pool.request(
            method,
            f"{self._host}{path}?{urlencode(query)}",
            body=None if body is None else json.dumps(body),
            headers={"Content-Type": content_type, "Accept": accept},
            timeout=TIMEOUT_SECONDS,
        )
        warnings = tuple(response.headers.getlist("Warning"))
        return Answer(response.status, json.loads(response.data), warnings)

    def create(self, obj: Mapping[str, Any], **query: str) -> Answer:
        """POST an object of ours."""
        return self.request("POST", path_of(obj, named=False), obj, **query)

    def patch(self, obj: Mapping[str, Any], patch: Any, subresource: str = "", **query: str) -> Answer:
        """Merge-patch an object of ours."""
        return self.request(
            "PATCH",
            path_of(obj) + subresource,
            patch,
            content_type="application/merge-patch+json",
            **query,
        )

    def apply(self, path: str, body: Mapping[str, Any]) -> Answer:
        """Forced server-side apply."""
        return self.request(
            "PATCH",
            path,
            body,
            content_type="application/apply-patch+yaml",
            fieldManager="tests",
            force="true",
        )

    def install(self, crd: Mapping[str, Any]) -> None:
        """Apply a CustomResourceDefinition and wait until it is served."""
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{crd['metadata']['name']}"
        answer = self.apply(path, crd)
        assert answer.code in (200, 201), answer.body

        def established() -> bool:
            conditions = self.request("GET", path).body.get("status", {}).get("conditions") or []
            return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)

        wait_for(f"{crd['metadata']['name']} to be established", established, TIMEOUT_SECONDS)


def path_of(obj: Mapping[str, Any], *, named: bool = True) -> str:
    """The path of an object, or of its collection."""
    metadata = obj["metadata"]
    namespace = f"namespaces/{metadata['namespace']}/" if "namespace" in metadata else ""
    collection = f"/apis/{obj['apiVersion']}/{namespace}{_PLURALS[obj['kind']]}"
    return f"{collection}/{metadata['name']}" if named else collection


def all_crds() -> list[dict[str, Any]]:
    """The checked-in CustomResourceDefinitions."""
    return [yaml.load(path.read_text(), yaml.CSafeLoader) for path in sorted(CRDS.glob("*.yaml"))]


@pytest.fixture(scope="session")
def api(control_plane: ControlPlane) -> Api:
    """The API server with our CRDs."""
    api = Api(control_plane.kubeconfig)
    for crd in all_crds():
        api.install(crd)
    return api


@pytest.fixture
def create(api: Api) -> Iterator[Callable[[Mapping[str, Any]], Any]]:
    """Creates objects and deletes them after the test."""
    made: list[Mapping[str, Any]] = []

    def creator(obj: Mapping[str, Any]) -> Any:
        answer = api.create(obj)
        assert answer.code == 201, answer.body
        made.append(obj)
        return answer.body

    yield creator
    for obj in made:
        api.request("DELETE", path_of(obj))
