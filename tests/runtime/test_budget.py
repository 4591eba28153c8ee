"""What a request takes of the memory of all requests is given back, whenever its client leaves."""

import gzip

import pytest
from tailbound_runtime.budget import SHORT_BYTES, Budget, Share
from tailbound_runtime.errors import ApiError
from tailbound_runtime.reception import Limits, unpack


def test_short_requests_have_memory_of_their_own_and_together_no_more_than_that() -> None:
    budget = Budget(8 * SHORT_BYTES)
    short, other, longer = Share(budget), Share(budget), Share(budget)
    short.need(SHORT_BYTES - 1)
    longer.need(8 * SHORT_BYTES)  # all of the limit, beside what is short
    other.need(1)
    for size, status in ((1, 503), (8 * SHORT_BYTES, 413)):
        with pytest.raises(ApiError) as refused:
            other.need(size)
        assert refused.value.status == status
    assert budget.used == 9 * SHORT_BYTES
    longer.hold(SHORT_BYTES)
    short.need(2)  # it is not short any longer: all of it comes from the limit
    other.need(SHORT_BYTES - 1)
    assert budget.used == 3 * SHORT_BYTES + 1
    for share in (short, other, longer):
        share.end()
    assert budget.used == 0
    with pytest.raises(ApiError, match="the client has left"):
        short.need(1)


def test_a_thread_that_unpacks_for_a_client_that_has_left_takes_nothing_more() -> None:
    budget = Budget(2**24)

    class Left(Share):
        """Ends as its client leaves, in the middle of the work of another thread."""

        def need(self, more: int) -> None:
            super().need(more)
            if budget.used > 2**21:
                self.end()

    packed = gzip.compress(bytes(2**23))
    with pytest.raises(ApiError, match="the client has left"):
        unpack(b"gzip", packed, Limits(2**24, 60.0), Left(budget))
    assert budget.used == 0
