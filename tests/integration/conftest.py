"""One real API server for the whole run of integration tests; tests keep apart by namespace."""

from collections.abc import Iterator

import pytest

from e2e.cluster import ControlPlane


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """etcd and kube-apiserver, without controllers and nodes."""
    with ControlPlane.start(tmp_path_factory.mktemp("control-plane")) as running:
        yield running
