"""The one fixture of downloads."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.fetch.faulty_store import running
from tests.unit.fetch.fetcher import CONTENT, Fetcher


@pytest.fixture
def fetcher(tmp_path: Path) -> Iterator[Fetcher]:
    with running(CONTENT) as store:
        yield Fetcher(store, tmp_path / "model.onnx")
