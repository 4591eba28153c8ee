"""What Prometheus answers about a revision whose requests arrive at one rate, in batches of known size."""

from collections.abc import Mapping

from tailbound.controller.signals import BATCH_WINDOW, LATENCY_WINDOW


def batched(rate: float, rows: float, base: float, per_row: float) -> Mapping[str, float]:
    """The values by signal. A batch of `rows` requests takes base + per_row * rows seconds."""
    seconds, batches = base + per_row * rows, rate * BATCH_WINDOW / rows
    # Two sizes of batches: a line needs two points.
    squares = rows**2 + 1
    return {
        "in flight": rate * seconds,
        "judged": rate * LATENCY_WINDOW,
        "late": 0.0,
        "shed": 0.0,
        "batch_requests": rate * BATCH_WINDOW,
        "batches": batches,
        "batch_rows": batches * rows,
        "batch_rows_squared": batches * squares,
        "batch_seconds": batches * seconds,
        "batch_row_seconds": batches * (base * rows + per_row * squares),
    }
