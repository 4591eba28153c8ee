"""Which scenarios that disturb run at once."""

from pathlib import Path
from threading import Thread

import pytest

from e2e.scenarios.library.parts import GATEWAYS, OPERATOR, PROMETHEUS, reserved


@pytest.mark.parametrize(
    ("others", "own", "at_once"),
    [
        (([OPERATOR], []), ([PROMETHEUS], [GATEWAYS]), True),
        (([OPERATOR], [GATEWAYS]), ([PROMETHEUS], [GATEWAYS]), True),
        (([OPERATOR], []), ([OPERATOR], []), False),
        (([GATEWAYS], []), ([OPERATOR], [GATEWAYS]), False),
        (([OPERATOR], [GATEWAYS]), ([GATEWAYS], []), False),
    ],
    ids=["other-parts", "both-need-one", "the-same-part", "what-it-needs", "what-another-needs"],
)
def test_no_scenario_disturbs_what_another_disturbs_or_needs(
    tmp_path: Path, others: tuple[list[str], list[str]], own: tuple[list[str], list[str]], at_once: bool
) -> None:
    def run() -> None:
        with reserved(tmp_path, *own):
            pass

    scenario = Thread(target=run)
    with reserved(tmp_path, *others):
        scenario.start()
        scenario.join(1 if at_once else 0.05)
        assert scenario.is_alive() is not at_once
    scenario.join(1)
    assert not scenario.is_alive()
