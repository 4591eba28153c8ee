"""A fleet is refreshed a few at a time, and no further once one rollout did not end well."""

import pytest
from tailbound.cli.outcome import FAILED, PAUSED, PROMOTED, ROLLED_BACK, WaitOutcome
from tailbound.cli.refresh import Fleet, outdated
from tailbound.cli.subject import service_of

from tests.unit.cli.cli_objects import condition, service

KEYS = tuple(("risk", name) for name in "abcd")


def refreshed(at_once: int, ends: dict[str, int]) -> tuple[list[str], Fleet, int]:
    """The services that were begun, the fleet at the end, and how many were ever under way at once."""
    fleet, begun, most = Fleet(KEYS, at_once), [], 0
    while not fleet.over:
        for key in fleet.to_begin():
            fleet = fleet.begun(key)
            begun.append(key[1])
        most = max(most, len(fleet.under_way))
        key = min(fleet.under_way)
        fleet = fleet.after(key, WaitOutcome(ends.get(key[1], PROMOTED), "end"))
    return begun, fleet, most


@pytest.mark.parametrize("at_once", [1, 2, 3, 9])
def test_at_most_so_many_at_once(at_once: int) -> None:
    begun, fleet, most = refreshed(at_once, {})
    assert (begun, most) == (list("abcd"), min(at_once, 4))
    assert (fleet.failed, fleet.left) == (None, ())


@pytest.mark.parametrize("code", [ROLLED_BACK, PAUSED, FAILED])
@pytest.mark.parametrize(("at_once", "begun"), [(1, "ab"), (2, "abc")])
def test_one_that_does_not_end_promoted_is_the_last_that_is_begun(
    code: int, at_once: int, begun: str
) -> None:
    found, fleet, _ = refreshed(at_once, {"b": code})
    assert "".join(found) == begun
    assert fleet.failed == WaitOutcome(code, "end")
    assert not fleet.under_way, "the others are waited for"


def test_only_what_would_be_made_otherwise_is_refreshed() -> None:
    found = []
    for name, outdated_ in (
        ("b", ("True", "RuntimeChanged")),
        ("a", ("True", "RuntimeChanged")),
        ("c", ("True", "RuntimeNotFound")),
        ("d", ("False", "UpToDate")),
        ("e", None),
    ):
        raw = service()
        raw["metadata"] = {**raw["metadata"], "name": name}
        if outdated_ is not None:
            raw["status"]["conditions"].append(condition("RuntimeOutdated", *outdated_, "why"))
        found.append(service_of(raw))
    assert outdated(found) == (("risk", "a"), ("risk", "b"))
