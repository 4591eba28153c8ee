"""What a foreign server's counters say of its batches, and what is learned from them."""

from dataclasses import replace

import pytest
from tailbound.autoscale.batch_time import Fit, learn
from tailbound.autoscale.model import BATCH_WINDOW, BatchSums
from tailbound.autoscale.server_counters import ServerCounters, batch_sums, waiting
from tailbound.objects.unknown import Unknown

# Ten batches of four requests with a row each; a batch takes 0.1 s.
TOLD = ServerCounters(requests=40, rows=40, seconds=1.0, each_request=False, pods=2, batches=10)
LEARNED = BatchSums(BATCH_WINDOW, 40, 10, 40, 160, 1.0, 4.0)
NOTHING = BatchSums(BATCH_WINDOW, 0, 0, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("counted", "sums"),
    [
        pytest.param(TOLD, LEARNED, id="time-of-batches"),
        pytest.param(replace(TOLD, seconds=4.0, each_request=True), LEARNED, id="time-of-requests"),
        # Four times the seconds of a window's two pods: four at a time.
        pytest.param(
            ServerCounters(40, 40, 4 * 2 * BATCH_WINDOW, each_request=True, pods=2, batches=None),
            BatchSums(BATCH_WINDOW, 40, 10, 40, 160, 2 * BATCH_WINDOW, 8 * BATCH_WINDOW),
            id="beside-each-other",
        ),
        pytest.param(
            ServerCounters(40, 80, 4.0, each_request=True, pods=2, batches=None),
            BatchSums(BATCH_WINDOW, 40, 40, 80, 160, 4.0, 8.0),
            id="hardly-busy-with-two-rows-each",
        ),
        pytest.param(replace(TOLD, requests=0, rows=0, seconds=0, batches=0), NOTHING, id="idle"),
        pytest.param(replace(TOLD, batches=0), NOTHING, id="its-batch-goes-on"),
    ],
)
def test_the_counters_make_batches(counted: ServerCounters, sums: BatchSums) -> None:
    assert batch_sums(counted) == sums


def test_another_metric_than_that_of_batches_is_no_capacity() -> None:
    found = batch_sums(replace(TOLD, batches=61))
    assert isinstance(found, Unknown)
    assert "61 batches of 40 rows" in found.reason


def test_the_line_of_a_server_that_runs_requests_beside_each_other_is_found() -> None:
    """A request takes 1 s and 0.1 s more for each one beside it, whatever the load."""
    fit = Fit()
    for number, beside in enumerate([2, 4, 8, 16, 8, 4] * 5):
        took = 1 + 0.1 * beside
        answered = beside / took * BATCH_WINDOW
        counted = ServerCounters(answered, answered, answered * took, each_request=True, pods=1, batches=None)
        sums = batch_sums(counted)
        assert isinstance(sums, BatchSums)
        fit = learn(fit, sums, number * BATCH_WINDOW, 32)
    assert fit.batch_times is not None
    assert fit.batch_times.capacity(32) == pytest.approx(32 / 4.2, rel=0.15)


@pytest.mark.parametrize(
    ("queue", "sums", "waits"),
    [
        (20.0, LEARNED, 12.0),  # each of the two pods takes four more
        (8.0, LEARNED, 0.0),
        (20.0, NOTHING, 18.0),
        (20.0, Unknown("why"), 18.0),
    ],
)
def test_what_one_more_batch_has_no_place_for_waits(
    queue: float, sums: BatchSums | Unknown, waits: float
) -> None:
    assert waiting(queue, 2, sums) == waits
