"""One server per model for all the tests that only send requests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtime import models
from tests.runtime.process import Server, serving


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="session")
def arithmetic(folder: Path) -> Iterator[Server]:
    with serving(models.arithmetic(folder / "arithmetic.onnx"), max_request_bytes="200000") as server:
        yield server


@pytest.fixture(scope="session")
def magika_server() -> Iterator[Server]:
    with serving(models.magika_model()) as server:
        yield server


@pytest.fixture(scope="session")
def slow_model(folder: Path) -> Path:
    return models.counting(folder / "counting.onnx")
