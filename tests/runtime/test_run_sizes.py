"""Which size the next run on a device has."""

import pytest
from tailbound_runtime.batch import Batching, Mode
from tailbound_runtime.run_sizes import RunSizes

BATCHING = Batching(Mode.DYNAMIC, 8, (), 0, fills=(2, 4, 8))


def sizes(seconds: dict[int, float]) -> RunSizes:
    made = RunSizes(BATCHING)
    for rows, each in seconds.items():
        made.measured(rows, each)
    return made


@pytest.mark.parametrize(
    ("seconds", "waiting", "count"),
    [
        pytest.param({}, [1] * 5, 5, id="times-unknown"),
        pytest.param({2: 1.2, 4: 2.1, 8: 4.0}, [1], 1, id="one"),
        pytest.param({2: 1.2, 4: 2.1, 8: 4.0}, [1] * 5, 4, id="filling-up-would-cost-more"),
        pytest.param({2: 1.2, 4: 2.1, 8: 4.0}, [1] * 8, 8, id="all-fit"),
        pytest.param({2: 1.0, 4: 1.0, 8: 1.0}, [1] * 5, 5, id="sizes-cost-the-same"),
        pytest.param({2: 1.0, 4: 3.0, 8: 9.0}, [1] * 8, 2, id="small-runs-are-the-fastest"),
        pytest.param({2: 1.2, 4: 2.1, 8: 4.0}, [2, 1, 2], 2, id="requests-stay-whole"),
        pytest.param({2: 1.0, 4: 3.0, 8: 9.0}, [3, 1], 1, id="at-least-one"),
        pytest.param({2: 1.2, 4: 2.1, 8: 4.0, 16: 1.0}, [1] * 8, 8, id="no-size-of-this-model"),
    ],
)
def test_a_run_takes_what_gives_the_most_rows_for_its_time(
    seconds: dict[int, float], waiting: list[int], count: int
) -> None:
    assert sizes(seconds).count(waiting) == count


def test_the_time_of_a_run_is_that_of_its_size() -> None:
    assert [sizes({4: 2.0}).seconds(rows) for rows in (3, 4, 5)] == [2.0, 2.0, float("inf")]
