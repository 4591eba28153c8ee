"""The image of each large engine is built as docs/engines.md says, and serves with its own entry.

It is in buildah's storage only while its test runs. What is measured of each is printed with `pytest -s`.
"""

import os
import shutil
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from e2e.cluster.binaries import cache_folder
from e2e.cluster.building import container
from e2e.cluster.images import engine_image
from e2e.scenarios.library.engines import FROM_A_VOLUME, Engine
from tests.runtime.engine_packages import ask, folder, heavy_folder, torch_folder
from tests.runtime.process import environment, run_by, stop

GIGABYTE = 10**9
# Four times the size of the largest image that has these packages.
FREE_GIGABYTES = {torch_folder: 23, heavy_folder: 10, folder: 4}


@pytest.mark.parametrize("engine", FROM_A_VOLUME, ids=lambda engine: engine.name)
def test_the_image_of_an_engine_serves_with_its_own_entry(engine: Engine, tmp_path: Path) -> None:
    free, needed = shutil.disk_usage(cache_folder()).free / GIGABYTE, FREE_GIGABYTES[engine.packages]
    assert free > needed, f"{cache_folder()} has {free:.1f} GB free, and the build takes up to {needed} GB"
    _, rows, expected = engine.made(tmp_path)
    # The server runs as another user than the one who made the files.
    tmp_path.chmod(0o755)
    model_format = engine.formats[0]
    how = {"model_format": model_format, "batching_mode": "dynamic", "batching_max_size": "8"}
    variables = environment(engine.served(tmp_path), engine=engine.name, **how)
    settings = {name: value for name, value in variables.items() if name.startswith("TAILBOUND_")}
    begun = time.monotonic()
    with container(engine_image(engine.name)) as built:
        took, size = time.monotonic() - begun, built.image_bytes / GIGABYTE
        sys.stdout.write(f"{engine.name}: {size:.2f} GB, built in {took:.0f} s\n")
        with run_by(built.command(settings, tmp_path), os.environ) as server:
            server.wait_for("ready")
            described = server.client.get("/v2/models/m").json()
            assert described["platform"] == f"{engine.name}_{model_format}"
            engine.check(partial(ask, server, datatype=engine.datatype, name=engine.input), rows, expected)
            stop(server)
