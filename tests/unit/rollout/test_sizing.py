"""How many pods a revision gets for its share of the requests."""

import pytest
from tailbound.rollout.sizing import Size, Sizing, fixed


@pytest.mark.parametrize(
    ("pods", "share", "expected"),
    [(4, 100, 4), (4, 50, 2), (4, 25, 1), (4, 26, 2), (4, 5, 1), (1, 1, 1), (1000, 99, 990)],
)
def test_a_share_needs_its_part_of_the_pods_and_one_at_least(pods: int, share: int, expected: int) -> None:
    assert fixed(pods).pods("any", share) == expected


@pytest.mark.parametrize(
    ("size", "share", "expected"),
    [
        pytest.param(Size(6, share=25), 25, 6, id="as-it-was-sized"),
        pytest.param(Size(6, share=25), 50, 11, id="the-next-step-on-slower-pods-than-usual"),
        pytest.param(Size(1, share=5), 25, 2, id="one-pod-says-little-as-many-as-usual"),
        pytest.param(Size(1, share=5), 50, 3, id="the-same-at-a-later-step"),
        pytest.param(Size(1, share=5), 100, 5, id="the-same-with-all-requests"),
        pytest.param(Size(2, share=50), 100, 4, id="on-faster-pods-than-usual"),
        pytest.param(Size(8, share=25, needed=1), 25, 8, id="as-it-was-sized-whatever-the-traffic-needs"),
        pytest.param(Size(8, share=25, needed=1), 50, 2, id="more-than-the-traffic-needs-is-not-multiplied"),
        pytest.param(Size(6, share=50), 25, 3, id="back-to-an-earlier-share"),
        pytest.param(Size(6, share=25), 100, 20, id="never-more-than-most"),
        pytest.param(Size(1), 100, 2, id="never-fewer-than-least"),
        pytest.param(Size(1), 50, 1, id="nor-than-its-part-of-least"),
    ],
)
def test_a_revision_sized_on_its_own_follows_its_share(size: Size, share: int, expected: int) -> None:
    sizing = Sizing(least=2, most=20, usual=Size(5), sizes={"canary": size})
    assert (sizing.pods("canary", share), sizing.pods("other")) == (expected, 5)
