"""`python -m tests.fuzz [--seed N] [--count N]`: every fuzzer; the last line is the outcome as JSON.

{"seed": N, "faults": N, "gateway": {...}, "runtime": {...}, "definitions": {...}} with their answers.
Without --seed a new one is taken, and printed. The exit status is 0 if there is no fault.
"""

import argparse
import asyncio
import json
import logging
import secrets
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from e2e.cluster import ControlPlane
from tests.fuzz import definitions, gateway, runtime
from tests.fuzz.outcome import Outcome
from tests.integration.api.conftest import Api, all_crds
from tests.integration.gateway.gateway_lab import gateway_pod

COUNT: Final = 10_000


def _definitions(seed: int, count: int, folder: Path) -> Outcome:
    with ControlPlane.start(folder) as running:
        api = Api(running.kubeconfig)
        for crd in all_crds():
            api.install(crd)

        def create(body: Mapping[str, Any]) -> tuple[int, Any]:
            answer = api.create(body, dryRun="All")
            return answer.code, answer.body

        return definitions.fuzz(seed, count, create)


async def _gateway(seed: int, count: int, folder: Path) -> Outcome:
    async with gateway_pod(folder) as running:
        return await gateway.fuzz(seed, count, running)


FUZZERS: Final[dict[str, Callable[[int, int, Path], Outcome]]] = {
    "gateway": lambda seed, count, folder: asyncio.run(_gateway(seed, count, folder)),
    "runtime": runtime.fuzz,
    "definitions": _definitions,
}


def main() -> int:
    """Run every fuzzer; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**32))
    parser.add_argument("--count", type=int, default=COUNT, help="cases of each fuzzer")
    arguments = parser.parse_args()
    # The pods of the gateway's fuzzer log every request that is malformed.
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)
    sys.stdout.write(f"seed {arguments.seed}\n")
    outcomes = {}
    for name, fuzz in FUZZERS.items():
        with tempfile.TemporaryDirectory() as folder:
            outcomes[name] = outcome = fuzz(arguments.seed, arguments.count, Path(folder))
        sys.stdout.write("\n".join((f"{name}: {outcome.cases} cases", *outcome.faults)) + "\n")
        sys.stdout.flush()
    found: dict[str, Any] = {name: outcome.as_json() for name, outcome in outcomes.items()}
    faults = sum(each["faults"] for each in found.values())
    sys.stdout.write(json.dumps({"seed": arguments.seed, "faults": faults, **found}) + "\n")
    return int(faults > 0)


if __name__ == "__main__":
    raise SystemExit(main())
