"""How requests share runs of the model."""

from enum import StrEnum
from itertools import pairwise
from typing import Annotated, ClassVar, Final

from pydantic import Field, StrictInt

from tailbound.api.quantities import Duration
from tailbound.api.quantity_fields import duration_between
from tailbound.api.schema import ATOMIC, Model, Rule, whole_number

DEFAULT_MAX_BATCH_SIZE: Final = 8
_MOST_ROWS: Final = 4096
_MOST_SIZES: Final = 16


class Mode(StrEnum):
    """Whether requests share a run of the model, and of what size it is."""

    NONE = "none"
    DYNAMIC = "dynamic"
    STATIC = "static"


PreferredSize = Annotated[
    StrictInt, whole_number("a preferred batch size", 1, _MOST_ROWS, "a number of rows")
]

_SIZES_RISE: Final = Rule(
    cel="self.isSorted() && self.all(size, self.exists_one(other, other == size))",
    holds=lambda sizes: all(earlier < later for earlier, later in pairwise(sizes)),
    message="the preferred batch sizes {value} do not rise: write each one greater than the one before, for "
    "example 4, 8",
    value=list,
)


class Batching(Model):
    """How requests share runs of the model. A row is one step along the first dimension of its tensors."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.mode != 'none' || !(has(self.maxBatchSize) || has(self.maxQueueDelay) "
            "|| (has(self.preferredBatchSizes) && self.preferredBatchSizes.size() > 0))",
            holds=lambda batching: batching.mode is not Mode.NONE or not batching.says_how(),
            message="mode none batches no requests, so that the other fields have no effect: write mode "
            "dynamic or static, or remove them",
        ),
        Rule(
            cel="self.mode != 'static' || !has(self.preferredBatchSizes) "
            "|| self.preferredBatchSizes.size() == 0",
            holds=lambda batching: batching.mode is not Mode.STATIC or not batching.preferred_batch_sizes,
            message="preferredBatchSizes have no effect with mode static, whose batches all have "
            "maxBatchSize rows: remove them, or write mode dynamic",
        ),
        Rule(
            cel="!has(self.preferredBatchSizes) || self.preferredBatchSizes.all(size, "
            f"size <= (has(self.maxBatchSize) ? self.maxBatchSize : {DEFAULT_MAX_BATCH_SIZE}))",
            holds=lambda batching: all(
                size <= batching.effective_max_batch_size() for size in batching.preferred_batch_sizes
            ),
            message="a preferred batch size is greater than maxBatchSize, which is {value}: lower it, or "
            "raise maxBatchSize",
            value_cel=f"has(self.maxBatchSize) ? self.maxBatchSize : {DEFAULT_MAX_BATCH_SIZE}",
            value=lambda batching: batching.effective_max_batch_size(),
        ),
    )

    mode: Mode = Mode.NONE
    """none: each run of the model serves one request. dynamic: a run serves the waiting requests, up to
    maxBatchSize rows. static: each run has exactly maxBatchSize rows, padded with copies if too few wait; for
    models with a fixed batch size."""

    max_batch_size: (
        Annotated[StrictInt, whole_number("maxBatchSize", 1, _MOST_ROWS, "a number of rows")] | None
    ) = None
    """Maximum number of rows in one run, and in one request. Default: 8."""

    preferred_batch_sizes: Annotated[
        tuple[PreferredSize, ...], Field(max_length=_MOST_SIZES), ATOMIC, _SIZES_RISE
    ] = ()
    """Batch sizes, in rows, at which a run starts at once instead of waiting for more. Only useful for models
    that are much faster at some sizes than at others."""

    max_queue_delay: (
        Annotated[
            Duration, duration_between("0ms", "10s", "for which a request may wait for others to join it")
        ]
        | None
    ) = None
    """Longest time for which a request waits for others to join its batch. The included model server learns,
    within it, how long that pays. Default: 0, so that a run takes the requests that arrived during the
    previous run."""

    def says_how(self) -> bool:
        """Whether any field but the mode is given."""
        return bool(self.preferred_batch_sizes) or not (
            self.max_batch_size is None and self.max_queue_delay is None
        )

    def effective_max_batch_size(self) -> int:
        """The most rows of one run; 1 without batching, where larger requests are served all the same."""
        if self.mode is Mode.NONE:
            return 1
        return DEFAULT_MAX_BATCH_SIZE if self.max_batch_size is None else self.max_batch_size
