"""Which fields of a spec make a revision: those that change the pods or the model, and no others."""

from typing import Any, Final

from tailbound.api.inferenceservice import InferenceServiceSpec
from tailbound.api.quantities import Duration
from tailbound.revisions.identity import spec_hash

# Not here: hosts, sla, overload, scaling and stopped. They are honoured without new pods. Neither are
# these parts: they decide whether pods are made, and when those of another class are, but not how.
_FIELDS: Final = {
    "model",
    "runtime",
    "hardware",
    "resources",
    "batching",
    "timeout",
    "env",
    "labels",
    "annotations",
    "service_account_name",
    "image_pull_secrets",
    "affinity",
    "topology_spread_constraints",
}
_PARTS: Final = {"model": {"size"}, "hardware": {"fallback_after", "return_policy", "return_after"}}

REFRESH_FIELD: Final = "refresh"
"""Among the stored fields of a spec, what the annotation was; no field of a spec has this name."""

# What a derived timeout can become by an edit of the SLA, which must not restart pods. The gateway enforces
# the exact one; the server only has to be no stricter.
LONGEST_DERIVED_TIMEOUT: Final = Duration.parse("5m")


def relevant(spec: InferenceServiceSpec, refresh: str) -> dict[str, Any]:
    """The fields that make a revision, in canonical spelling, those left at their default excluded.

    `refresh` is the annotation of that name, or empty: each value is a revision of its own.
    """
    fields = spec.model_dump(
        mode="json", by_alias=True, exclude_defaults=True, include=_FIELDS, exclude=_PARTS
    )
    return {**fields, REFRESH_FIELD: refresh} if refresh else fields


def beside(spec: InferenceServiceSpec) -> dict[str, Any]:
    """The fields that make no revision, in canonical spelling, defaults included."""
    whole = spec.model_dump(mode="json", by_alias=True, exclude_none=True, exclude=_FIELDS)
    parts = spec.model_dump(mode="json", by_alias=True, exclude_none=True, include=_PARTS)
    return {**whole, **parts}


def digest(spec: InferenceServiceSpec, refresh: str) -> str:
    """The spec hash of these fields."""
    return spec_hash(relevant(spec, refresh))


def pod_timeout(spec: InferenceServiceSpec) -> Duration:
    """The longest time that a request may take in a pod of this spec."""
    return LONGEST_DERIVED_TIMEOUT if spec.timeout is None else spec.timeout
