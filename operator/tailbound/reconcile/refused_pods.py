"""Why the API server refuses to create a pod, read from the answer of its admission plug-ins.

First row that fits (`_RULES`); a lack of room is the only one that ends when other pods end:

| the answer says | reason |
|---|---|
| exceeded quota, and the quota holds less than one pod asks for | QuotaTooSmall |
| exceeded quota, or the usage of the quota is not known yet | QuotaExceeded: a lack of room |
| the quota wants resources to be stated that the pod does not state | ResourcesRequired |
| the ServiceAccount, RuntimeClass or PriorityClass does not exist | (ServiceAccount …)NotFound |
| a container or the pod is outside of a LimitRange | LimitRangeViolated |
| a policy, a webhook or the Pod Security admission denies it | PolicyDenied |
| a webhook does not answer | WebhookUnavailable |
| anything else | PodRefused |
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tailbound.api.conditions import Reason
from tailbound.api.quantities import Quantity


@dataclass(frozen=True)
class PodRefusal:
    """Why a pod is not admitted, and what to do; the remedy is empty where more room is all that helps."""

    reason: Reason
    remedy: str = ""


_TOO_SMALL: Final = PodRefusal(
    Reason.QUOTA_TOO_SMALL,
    "raise the quota, or ask for less: one pod alone needs more than it allows",
)
_RULES: Final[tuple[tuple[re.Pattern[str], PodRefusal], ...]] = (
    (re.compile(r"exceeded quota|status unknown for quota"), PodRefusal(Reason.QUOTA_EXCEEDED)),
    (
        re.compile(r"failed quota: .*must specify"),
        PodRefusal(
            Reason.RESOURCES_REQUIRED,
            "state these resources in spec.resources or in the HardwareClass, or give the namespace a "
            "LimitRange with defaults",
        ),
    ),
    (
        re.compile(r"error looking up service account|serviceaccount \S+ not found", re.IGNORECASE),
        PodRefusal(
            Reason.SERVICE_ACCOUNT_NOT_FOUND, "create the ServiceAccount, or correct spec.serviceAccountName"
        ),
    ),
    (
        re.compile(r"RuntimeClass \S+ not found", re.IGNORECASE),
        PodRefusal(
            Reason.RUNTIME_CLASS_NOT_FOUND,
            "create the RuntimeClass, or correct runtimeClassName of the HardwareClass",
        ),
    ),
    (
        re.compile(r"no PriorityClass with name \S+ was found", re.IGNORECASE),
        PodRefusal(
            Reason.PRIORITY_CLASS_NOT_FOUND,
            "create the PriorityClass, or correct priorityClassName of the HardwareClass",
        ),
    ),
    (
        re.compile(r"(minimum|maximum) \S+ usage per |max limit to request ratio per "),
        PodRefusal(Reason.LIMIT_RANGE_VIOLATED, "change spec.resources, or the LimitRange of the namespace"),
    ),
    (
        re.compile(r"failed calling webhook|failed to call webhook"),
        PodRefusal(Reason.WEBHOOK_UNAVAILABLE, "mend the webhook, or the service that answers for it"),
    ),
    (
        re.compile(r"(Validating|Mutating)AdmissionPolicy|denied the request|violates PodSecurity"),
        PodRefusal(Reason.POLICY_DENIED, "change the spec as the policy asks, or the policy"),
    ),
)
_OTHERWISE: Final = PodRefusal(Reason.POD_REFUSED, "change what the message names")
_QUOTA_LISTS: Final = re.compile(r"requested: (?P<requested>\S+), used: \S+, limited: (?P<limited>[^\s,]\S*)")


def refusal_in(message: str) -> PodRefusal:
    """What the answer of the API server says."""
    if _asks_too_much(message):
        return _TOO_SMALL
    return next((refusal for words, refusal in _RULES if words.search(message)), _OTHERWISE)


def _asks_too_much(message: str) -> bool:
    """A quota allows less in all than the one pod asks for."""
    found = _QUOTA_LISTS.search(message)
    if found is None:
        return False
    limited, asked = dict(_amounts(found["limited"])), dict(_amounts(found["requested"]))
    return any(amount < asked[resource] for resource, amount in limited.items() if resource in asked)


def _amounts(listed: str) -> Iterator[tuple[str, Quantity]]:
    """The resources in `cpu=2,memory=4Gi`; what cannot be read is left out."""
    for item in listed.split(","):
        resource, _, amount = item.rpartition("=")
        try:
            yield resource, Quantity.parse(amount)
        except ValueError:
            continue
