"""What the releases of a service are not judged by, because its spec states no target for it. Pure.

| spec.sla has | latency | failures |
|---|---|---|
| both targets | judged by the target | judged by the target |
| no latency target | not judged | - |
| no error rate | - | judged relative to the stable revision |
"""

from tailbound.api.inferenceservice import ServiceLevel
from tailbound.judge.verdict import RELATIVE_RATIO, UNSTATED_ERROR_RATE


def unjudged(sla: ServiceLevel) -> str:
    """What is left out, why, and what to do; empty if everything is judged."""
    if sla.latency is not None:
        return ""
    without = "the latency of a new revision is not judged, because spec.sla.latency.p99 is absent"
    return f"{without}; {relative(sla)}" if relative(sla) else without


def relative(sla: ServiceLevel) -> str:
    """What is judged relative to the stable revision alone; empty if there is a target for it."""
    if sla.error_rate is not None:
        return ""
    return (
        f"its failures are judged relative to the stable revision (rejected: more than "
        f"{100 * UNSTATED_ERROR_RATE:g} % of the requests, and more than {RELATIVE_RATIO:g} times as many), "
        "because spec.sla.errorRate is absent"
    )
