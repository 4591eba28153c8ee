"""Why the scheduler finds no node for a pod: no room at present, or no node that could ever take it.

The scheduler counts the nodes by cause: `0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't match
Pod's node affinity/selector. preemption: 0/3 nodes are available: 1 No preemption victims found …`.

| each node | reason |
|---|---|
| is not selected, lacks a label of a constraint, or has a taint that the pod does not tolerate | NoNodeFits |
| is one of these, or is too small even without any other pod | NoNodeFits |
| otherwise: at least one is full, cordoned, not ready … | Unschedulable: a lack of room |

A taint of Kubernetes itself (node.kubernetes.io/…) says that a node is unwell at present. Since 1.33 the
scheduler says that preemption does not help where a node is too small; earlier ones are read as full.
"""

import re
from typing import Final

from tailbound.api.conditions import Reason

REMEDY: Final = (
    "correct spec.resources, spec.affinity and spec.topologySpreadConstraints, or nodeSelector, tolerations, "
    "resources and resourceClaim of the HardwareClass, or add a node that fits them"
)

_MESSAGE: Final = re.compile(
    r"0/(?P<nodes>[1-9]\d*) nodes are available: (?P<causes>.*?)(?:\. (?P<preemption>.*)|\.?$)", re.DOTALL
)
_CAUSE: Final = re.compile(r"(?:^|, )\d+ (?P<words>.*?)(?=, \d+ |$)", re.DOTALL)
_NEVER: Final = re.compile(
    r"didn't match Pod's node affinity/selector|had untolerated taint|volume node affinity conflict"
    r"|topology spread constraints \(missing required label\)"
)
_UNWELL: Final = re.compile(r"node\.(cloudprovider\.)?kubernetes\.io/")
_TOO_SMALL: Final = "Insufficient "
_NO_HELP: Final = re.compile(r"(?P<nodes>\d+) Preemption is not helpful for scheduling")


def reason_in(message: str) -> Reason:
    """The reason that the message of the scheduler stands for."""
    found = _MESSAGE.match(message)
    if found is None:
        return Reason.UNSCHEDULABLE
    causes = [each["words"] for each in _CAUSE.finditer(found["causes"])]
    no_help = _NO_HELP.search(found["preemption"] or "")
    all_too_small = no_help is not None and no_help["nodes"] == found["nodes"]
    fits_none = bool(causes) and all(_never(cause, too_small=all_too_small) for cause in causes)
    return Reason.NO_NODE_FITS if fits_none else Reason.UNSCHEDULABLE


def _never(cause: str, *, too_small: bool) -> bool:
    """No end of other pods makes room on a node with this cause."""
    if cause.startswith(_TOO_SMALL):
        return too_small
    return _NEVER.search(cause) is not None and _UNWELL.search(cause) is None
