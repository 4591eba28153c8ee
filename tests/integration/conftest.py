"""One real API server for each process that runs integration tests; tests keep apart by namespace."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

from e2e.cluster import ControlPlane

# Each takes a minute in which it mostly waits: at the end, one process would run it and the others nothing.
LONGEST: Final = "servers"


class OneProcessForEachServer(LoadScopeScheduling):  # type: ignore[misc]
    """Hands out tests one by one, but all tests of a file with a module's fixture to one process, and first.

    Such a fixture is a server that takes seconds to start. pytest-xdist's own `loadgroup` writes the group
    into the node id, which pytest 9.2 does not let it change: the tests of a group ran in every process.
    """

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid, self.config.rootpath)


def unit_of(nodeid: str, root: Path) -> str:
    """What runs in one process: the test, or its file if that has a module's fixture."""
    file = nodeid.partition("::")[0]
    return file if _has_server(root / file) else nodeid


@cache
def _has_server(file: Path) -> bool:
    return 'scope="module"' in file.read_text()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """How pytest-xdist spreads the tests of a run. Without its log it would print each step."""
    return OneProcessForEachServer(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest of the tests that are handed out one by one begin first."""
    items.sort(key=lambda item: item.path.parent.name != LONGEST)


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """etcd and kube-apiserver, without controllers and nodes."""
    with ControlPlane.start(tmp_path_factory.mktemp("control-plane")) as running:
        yield running
