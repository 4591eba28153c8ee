"""The two walks of CONTRIBUTING.md lead through functions that exist."""

import importlib
import re
from functools import reduce
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[3] / "CONTRIBUTING.md").read_text()
WALKS = TEXT.split("## Walk ")[1:]
STEP = re.compile(r"^\d+\. `([\w.]+):([\w.]+)`", re.MULTILINE)


@pytest.mark.parametrize("walk", WALKS, ids=["edit", "slow-request"])
def test_a_walk_is_at_most_twelve_functions_that_exist(walk: str) -> None:
    steps = STEP.findall(walk)
    assert 1 < len(steps) <= 12
    for module, name in steps:
        assert callable(reduce(getattr, name.split("."), importlib.import_module(module))), (module, name)
