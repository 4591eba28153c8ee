"""Fixtures of the scenarios: one cluster for the session, a fresh namespace for each scenario."""

import re
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.scenarios.library import installation, parts
from e2e.scenarios.library.audit import AuditLog
from e2e.scenarios.library.scene import Scene, World

pytest_plugins = ["e2e.scenarios.library.selection"]


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A folder of all workers that run side by side."""
    base = tmp_path_factory.getbasetemp()
    return base if worker_id == "master" else base.parent


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory, shared: Path) -> World:
    """The cluster with Tailbound installed; workers that run side by side install it once."""
    return installation.installed_world(scratch=tmp_path_factory.mktemp("world"), shared=shared)


@pytest.fixture(autouse=True)
def parts_reserved(request: pytest.FixtureRequest, world: World, shared: Path) -> Iterator[None]:
    """Lock the parts that a scenario marked `disturbs` disturbs or needs, while it runs."""
    marker = request.node.get_closest_marker("disturbs")
    if marker is None:
        yield
        return
    with parts.reserved(shared, marker.args, marker.kwargs.get("needs", ())):
        yield


@pytest.fixture
def audit(world: World) -> AuditLog:
    """The API server's audit log; only scenarios marked needs_own_cluster may ask for it."""
    assert world.audit is not None, "a scenario that reads the audit log must be marked needs_own_cluster"
    return world.audit


def _new_scene(world: World, test: str) -> Scene:
    words = re.sub("[^a-z0-9]+", "-", test.removeprefix("test_").lower())[:30].strip("-")
    namespace = f"{words}-{uuid.uuid4().hex[:5]}"
    world.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    return Scene(world, namespace)


@pytest.fixture
def scene(world: World, request: pytest.FixtureRequest) -> Iterator[Scene]:
    """A fresh namespace, deleted afterwards."""
    made = _new_scene(world, request.node.name)
    yield made
    world.api.delete("Namespace", made.namespace)


@pytest.fixture
def other_scene(world: World, request: pytest.FixtureRequest) -> Iterator[Scene]:
    """A second namespace, for scenarios about two."""
    made = _new_scene(world, f"other-{request.node.name}")
    yield made
    world.api.delete("Namespace", made.namespace)
