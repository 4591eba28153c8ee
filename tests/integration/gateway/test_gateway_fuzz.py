"""The first inputs of the gateway's fuzzer; `make fuzz` sends many more, and others each time."""

from tests.fuzz import gateway as fuzzer
from tests.integration.gateway.gateway_lab import Gateway


async def test_malformed_connections_end_nothing_and_reach_no_other_service(gateway: Gateway) -> None:
    outcome = await fuzzer.fuzz(1, 256, gateway)
    assert outcome.faults == []
    assert outcome.answers["h1 200"] > 0
    assert outcome.answers["h2 bytes"] > 0
