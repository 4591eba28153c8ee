"""What a request takes of the memory of all requests is given back, whenever its client leaves."""

import gzip

import pytest
from tailbound_runtime.budget import FREE_BYTES, Budget, Share
from tailbound_runtime.errors import ApiError
from tailbound_runtime.reception import Limits, unpack


def test_a_share_takes_what_is_more_than_the_free_bytes_and_gives_it_back() -> None:
    budget = Budget(3 * FREE_BYTES)
    with Share(budget) as share:
        share.need(FREE_BYTES)
        assert budget.used == 0
        share.need(2 * FREE_BYTES)
        assert budget.used == 2 * FREE_BYTES
        for size, status in ((2 * FREE_BYTES, 503), (4 * FREE_BYTES, 413)):
            with pytest.raises(ApiError) as refused:
                Share(budget).need(FREE_BYTES + size)
            assert refused.value.status == status
    assert budget.used == 0


def test_a_thread_that_unpacks_for_a_client_that_has_left_takes_nothing_more() -> None:
    budget = Budget(2**24)

    class Left(Share):
        """Ends as its client leaves, in the middle of the work of another thread."""

        def need(self, size: int) -> None:
            super().need(size)
            if budget.used > 2**21:
                self.end()

    packed = gzip.compress(bytes(2**23))
    with pytest.raises(ApiError, match="the client has left"):
        unpack(b"gzip", packed, Limits(2**24, 60.0), Left(budget))
    assert budget.used == 0
