"""The ResourceClaimTemplate of a revision's pods, where their hardware class asks for devices by a claim.

Its name has a digest of its content: the template of a claim is immutable, as the revision is.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tailbound.api.hardwareclass import HardwareClass
from tailbound.objects.fields import Object, child, children, text
from tailbound.revisions.identity import canonical_json, text_hash

CLAIM: Final = "devices"
"""The name of the claim in a pod."""
_DIGEST_LENGTH: Final = 8
_REQUEST_FIELDS: Final = frozenset({"deviceClassName", "allocationMode", "count", "selectors"})


@dataclass(frozen=True)
class ClaimTemplate:
    """A ResourceClaimTemplate as a revision keeps it."""

    name: str
    hardware_class: str
    """The first class of the revision that asks for it."""
    spec_json: str
    """The spec of the claims."""


def claim_template(revision: str, hardware_class: HardwareClass) -> ClaimTemplate | None:
    """The template of the claims of a class; None for a class without claims."""
    claim = hardware_class.spec.resource_claim
    if claim is None:
        return None
    requests = [
        {
            "name": each.name,
            "exactly": {
                "deviceClassName": each.device_class,
                "allocationMode": "ExactCount",
                "count": each.count,
                **({"selectors": [_selector(text) for text in each.selectors]} if each.selectors else {}),
            },
        }
        for each in claim.requests
    ]
    spec = canonical_json({"devices": {"requests": requests}})
    return ClaimTemplate(f"{revision}-{text_hash(spec)[:_DIGEST_LENGTH]}", hardware_class.metadata.name, spec)


def violations(spec: Object) -> tuple[str, ...]:
    """What a stored claim asks for that Tailbound renders for none, such as access as an administrator."""
    devices = spec["devices"]
    found = [*_others(spec, {"devices"}, ""), *_others(devices, {"requests"}, "devices.")]
    for index, request in enumerate(devices["requests"]):
        path = f"devices.requests[{index}]."
        found += [
            *_others(request, {"name", "exactly"}, path),
            *_others(request["exactly"], _REQUEST_FIELDS, f"{path}exactly."),
        ]
    return tuple(found)


def _selector(expression: str) -> dict[str, Any]:
    return {"cel": {"expression": expression}}


def _others(part: Object, known: frozenset[str] | set[str], path: str) -> list[str]:
    return [f"claims: {path}{field} is not allowed" for field in sorted(part.keys() - known)]


def claimed_devices(template: Object, claims: Iterable[ClaimTemplate]) -> Mapping[str, int]:
    """How many devices of each DeviceClass a pod of this template claims."""
    named = {
        text(each, "resourceClaimTemplateName")
        for each in children(child(template, "spec"), "resourceClaims")
    }
    counted: Counter[str] = Counter()
    for claim in claims:
        if claim.name in named:
            for request in json.loads(claim.spec_json)["devices"]["requests"]:
                counted[request["exactly"]["deviceClassName"]] += request["exactly"]["count"]
    return counted
