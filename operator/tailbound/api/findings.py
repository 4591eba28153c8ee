"""Verdicts on a new revision in status.rollout: one per objective and per metric, with their evidence."""

from typing import Annotated

from pydantic import StrictBool, StringConstraints

from tailbound.api.schema import Model


class EvidenceStatus(Model):
    """Evidence for or against a revision, as the natural logarithm of an e-value, and its threshold."""

    value: float
    """The present evidence."""

    threshold: float
    """The evidence that decides."""


class FindingStatus(Model):
    """The verdict on one objective at the last complete poll, with its numbers."""

    measure: Annotated[str, StringConstraints(max_length=32)]
    """latency or errors."""

    outcome: Annotated[str, StringConstraints(max_length=32)]
    """RollBack, Hold, Pass or Wait."""

    allowed: float
    """The fraction of bad requests that the SLA allows."""

    assumed: StrictBool = False
    """True if the SLA does not state the fraction: the revision is rejected if it fails more often than that
    and than the stable revision, and passes without a proof."""

    unacceptable: float
    """The fraction of bad requests that a passing revision is proven to stay below."""

    requests: float
    """Requests of the new revision that were judged; fractional if overdispersion reduces their number."""

    bad: float
    """Number of these requests that were slow or failed."""

    absolute: EvidenceStatus
    """Evidence that the revision breaches the SLA."""

    late: EvidenceStatus
    """Evidence that the revision has breached the SLA since a later step began."""

    relative: EvidenceStatus
    """Evidence that the revision is worse than the stable one."""

    passing: EvidenceStatus
    """Evidence from this step alone that the revision is good enough."""

    improves_breach: StrictBool = False
    """True if it passes only because it is proven better than a stable revision that breaches the SLA."""


class MetricFindingStatus(Model):
    """The verdict on one of analysis.metrics, with its numbers."""

    name: Annotated[str, StringConstraints(max_length=32)]
    """Name of the metric in the spec."""

    outcome: Annotated[str, StringConstraints(max_length=32)]
    """RollBack, Hold, Pass or Wait."""

    samples: float
    """Number of events or values that were judged; fractional if overdispersion reduces it."""

    mean: float | None = None
    """Fraction of bad events, or mean of the values; absent while there are none."""

    missing: Annotated[str, StringConstraints(max_length=1024)] | None = None
    """Why the metric has no value now; absent if it has one."""

    unmatched: StrictBool = False
    """True if the query for bad events has matched series of stable but none of the revision. This counts as
    no bad events, but it also happens if the revision uses other names for its series or labels."""

    bound: float
    """The bound in the spec."""

    against: EvidenceStatus
    """Evidence that the revision breaches the bound, or has breached it since a later step began."""

    relative: EvidenceStatus | None = None
    """Evidence that the revision is worse than the stable one; absent if the metric cannot compare them."""

    passing: EvidenceStatus
    """Evidence from this step alone that the revision keeps the bound."""

    improves_breach: StrictBool = False
    """True if it passes only because it is proven better than a stable revision that breaches the bound."""
