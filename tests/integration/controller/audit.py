"""What operators wrote, by the API server's audit log."""

import asyncio
import json
from pathlib import Path

from tests.integration.controller.environment import Environment


def writes_since(audit_log: Path, offset: int) -> list[str]:
    """Writes of operators in the audit log after `offset` bytes, Leases and statuses of classes aside.

    Those are written by the clock, and not because of a service.
    """
    with audit_log.open("rb") as log:
        log.seek(offset)
        events = [json.loads(line) for line in log.read().splitlines()]
    found = []
    for event in events:
        about = event["objectRef"]
        of_class = (about["resource"], about.get("subresource")) == ("hardwareclasses", "status")
        by_the_clock = of_class or about["resource"] == "leases"
        if event.get("userAgent") == "tailbound-operator" and not by_the_clock:
            place = "/".join(filter(None, (about["resource"], about.get("subresource"), about.get("name"))))
            found.append(f"{event['verb']} {place}")
    return found


async def settled(environment: Environment) -> int:
    """Size of the audit log once the operator has been quiet for a second."""
    log = environment.control_plane.audit_log

    async def quiet() -> int:
        size = log.stat().st_size
        await asyncio.sleep(1)
        return size if not writes_since(log, size) else 0

    return int(await environment.until("quiet", quiet))
