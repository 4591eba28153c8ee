"""Real servers serve with what the chart's runtimes render, report their speed, and lose no call in a drain.

The others that can be run are examined by `make test-servers`.
"""

from pathlib import Path

import pytest
from tailbound.autoscale.model import BatchSums, Known

from tests.integration.servers.drain import stopped_under_load
from tests.integration.servers.examination import batched, dropped
from tests.integration.servers.kinds import RUN_SECONDS, SERVERS
from tests.integration.servers.real import running
from tests.integration.servers.scraped import CLIENTS, read


@pytest.mark.parametrize("name", ["triton", "mlserver"])
def test_a_real_server_batches_reports_its_speed_and_loses_no_call_in_a_drain(
    name: str, tmp_path: Path
) -> None:
    server = SERVERS[name]
    with running(server, tmp_path / "held") as started:
        assert max(batched(started)) > 1
        reading, answered = read(started, tmp_path)
        held = stopped_under_load(started, held=True)
    assert (held.lost.total(), held.status) == (0, server.exit_status)
    assert isinstance(reading.batches, Known), reading.batches
    sums = reading.batches.value
    assert isinstance(sums, BatchSums)
    assert sums.requests == pytest.approx(answered, rel=0.25)
    assert 1 < sums.rows / sums.batches <= CLIENTS
    assert sums.seconds / sums.batches >= RUN_SECONDS
    # All clients together get what one pod can do: that is what is learned.
    assert sums.rows / sums.seconds == pytest.approx(answered / sums.window, rel=0.4)
    if name == "triton":
        assert isinstance(reading.waiting, Known)
        assert reading.waiting.value < CLIENTS, "the queue that another tenant's pod claims to be this one's"


def test_the_same_drain_without_its_hold_loses_calls(tmp_path: Path) -> None:
    assert dropped(SERVERS["triton"], tmp_path / "cut").lost.total() > 0
