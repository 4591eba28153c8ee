"""An Event as `kubectl describe` reads it."""

from datetime import UTC, datetime

from tailbound.telemetry.events import MESSAGE_LIMIT, event_body

from tests.support.simulated.objects import service

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


def test_an_event_has_the_times_that_kubectl_describe_sorts_by_and_fits_the_api() -> None:
    body = event_body(service(), "Warning", "RolledBack", "x" * 2000, instance="pod", now=NOW, suffix="s")
    assert (body["apiVersion"], body["kind"]) == ("v1", "Event")
    assert body["eventTime"] == "2026-01-02T03:04:05.678901Z"
    assert (body["firstTimestamp"], body["lastTimestamp"]) == ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z")
    assert body["involvedObject"]["name"] == "churn"
    assert len(body["message"]) == MESSAGE_LIMIT
