"""Slow correction of the latency model by the latency that was measured.

Learns only while nothing moves: no pod pending, the same number of replicas for a while, no backlog of late.
During a backlog latency tells how long it lasted, not what a replica can do.
"""

from typing import Final

LOWEST: Final = 0.5
QUIET: Final = 7
"""Ticks without any change after which latency is believed."""
_DOWN, _UP = 0.95, 1.01
_FAST: Final = 0.7
"""Share of the target below which a correction is taken back."""


def corrected(correction: float, p99: float, target: float, model_content: bool) -> float:
    """The correction after a quiet tick. `model_content`: the model says that these replicas are enough.

    | p99                 | model says enough | correction   |
    |---------------------|-------------------|--------------|
    | above the target    | yes               | lower        |
    | above the target    | no                | as it is     |
    | well below          | any               | back up to 1 |
    | in between          | any               | as it is     |
    """
    if p99 > target:
        return max(LOWEST, correction * _DOWN) if model_content else correction
    return min(1.0, correction * _UP) if p99 < _FAST * target else correction
