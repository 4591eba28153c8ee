"""Which service answers to which host."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tailbound.api.hosts import HostState, HostStatus
from tailbound.traffic.hosts import (
    Claim,
    HostClaims,
    HostOwnership,
    Record,
    cluster_names,
    preview_of,
    to_decide,
    to_follow,
)
from tailbound.traffic.model import ServiceKey

CHURN, FRAUD = ServiceKey("risk", "churn"), ServiceKey("risk", "fraud")
EXAMPLE = ServiceKey("com", "example")


def claim(service: ServiceKey, day: int, *hosts: str) -> Claim:
    return Claim(service, datetime(2026, 1, day, tzinfo=UTC), hosts)


def settle_hosts(claims: Iterable[Claim], cluster_domain: str) -> Mapping[ServiceKey, HostOwnership]:
    """The outcome where all services come at once."""
    hosts = HostClaims(cluster_domain)
    for each in claims:
        hosts.put(each)
    hosts.settle()
    return hosts.owned


def test_every_service_has_its_cluster_names() -> None:
    settled = settle_hosts([claim(CHURN, 1)], "cluster.local")
    assert settled[CHURN].hosts == ("churn.risk", "churn.risk.svc", "churn.risk.svc.cluster.local")


@pytest.mark.parametrize(
    ("claims", "owner", "denied"),
    [
        pytest.param([claim(CHURN, 1, "a.example.com")], CHURN, [], id="nobody else wants it"),
        pytest.param(
            [claim(CHURN, 2, "a.example.com"), claim(FRAUD, 1, "a.example.com")],
            FRAUD,
            [CHURN],
            id="the oldest service wins",
        ),
        pytest.param(
            [claim(FRAUD, 1, "a.example.com"), claim(CHURN, 1, "a.example.com")],
            CHURN,
            [FRAUD],
            id="of one age, the first by name",
        ),
        pytest.param(
            [claim(CHURN, 1, "a.example.com", "a.example.com")], CHURN, [], id="the same entry twice"
        ),
    ],
)
def test_claims_of_a_host(claims: list[Claim], owner: ServiceKey, denied: list[ServiceKey]) -> None:
    settled = settle_hosts(claims, "cluster.local")
    assert [key for key, owned in settled.items() if "a.example.com" in owned.hosts] == [owner]
    assert [key for key, owned in settled.items() if "a.example.com" in owned.denied] == denied


@pytest.mark.parametrize(
    ("host", "granted"),
    [
        ("fraud.risk", False),
        ("fraud.risk.svc", False),
        ("nobody.risk.svc", False),
        ("nobody.risk.svc.cluster.local", False),
        ("kubernetes.default.svc.cluster.local", False),
        ("churn.risk.svc", True),
        ("example.com", True),
        ("nobody.risk", True),
        ("svc.example.com", True),
    ],
)
def test_cluster_names_win(host: str, granted: bool) -> None:
    settled = settle_hosts([claim(CHURN, 1, host), claim(FRAUD, 2)], "cluster.local")
    assert (host in settled[CHURN].hosts, host in settled[CHURN].denied) == (granted, not granted)


PREVIEW = ("churn-preview.risk", "churn-preview.risk.svc", "churn-preview.risk.svc.cluster.local")
NAMESAKE = ServiceKey("risk", "churn-preview")


@pytest.mark.parametrize(
    ("previews", "others", "preview"),
    [
        pytest.param(True, [], PREVIEW, id="nobody else is called so"),
        pytest.param(False, [], (), id="it does not preview"),
        pytest.param(True, [claim(NAMESAKE, 2)], (), id="a service is called so, however young"),
        pytest.param(True, [claim(FRAUD, 1, PREVIEW[0])], PREVIEW, id="it is a host of another"),
    ],
)
def test_names_of_a_preview(previews: bool, others: list[Claim], preview: tuple[str, ...]) -> None:
    mine = replace(claim(CHURN, 1), previews=previews)
    settled = settle_hosts([mine, *others], "cluster.local")
    assert settled[CHURN].preview == preview
    assert set(preview) <= set(settled[CHURN].hosts)
    owned = [host for ownership in settled.values() for host in ownership.hosts]
    assert len(owned) == len(set(owned))


HOST = "a.example.com"
ACCEPTED = (HostStatus(host=HOST, state=HostState.ACCEPTED),)
TAKEN = (HostStatus(host=HOST, state=HostState.TAKEN, owner="risk/churn"),)
UNGRANTED = (HostStatus(host=HOST, state=HostState.NOT_GRANTED),)


def recorded(service: ServiceKey, day: int, record: Record, read: Callable[..., Any] = to_decide) -> Claim:
    held, barred = read((HOST,), record)
    return replace(claim(service, day, HOST), held=held, barred=barred)


@pytest.mark.parametrize(
    ("claims", "owners"),
    [
        pytest.param(
            [recorded(FRAUD, 1, TAKEN)], {FRAUD: "risk/churn"}, id="the-owner-is-gone-and-nobody-inherits"
        ),
        pytest.param(
            [recorded(CHURN, 3, None), recorded(FRAUD, 1, TAKEN)],
            {FRAUD: "risk/churn"},
            id="the-owner-is-there-again",
        ),
        pytest.param(
            [recorded(EXAMPLE, 3, None), recorded(FRAUD, 1, TAKEN)],
            {FRAUD: "com/example"},
            id="another-has-claimed-it-since",
        ),
        pytest.param(
            [recorded(CHURN, 2, ACCEPTED), recorded(FRAUD, 1, None)],
            {FRAUD: "risk/churn"},
            id="an-older-service-asks-for-a-host-that-has-an-owner",
        ),
        pytest.param(
            [recorded(CHURN, 2, ACCEPTED), recorded(FRAUD, 1, ACCEPTED)],
            {CHURN: "risk/fraud"},
            id="both-were-accepted-as-after-a-restore",
        ),
        pytest.param([recorded(FRAUD, 1, UNGRANTED)], {}, id="it-is-granted-now"),
    ],
)
def test_a_host_stays_with_its_owner_and_is_not_inherited(
    claims: list[Claim], owners: Mapping[ServiceKey, str]
) -> None:
    settled = settle_hosts(claims, "cluster.local")
    taken = {
        service: entry.owner
        for service, owned in settled.items()
        for entry in owned.entries
        if entry.state is HostState.TAKEN
    }
    assert taken == owners


@pytest.mark.parametrize(
    ("record", "answers"),
    [
        pytest.param(None, True, id="never-decided"),
        pytest.param((), False, id="the-host-was-added-since"),
        pytest.param(ACCEPTED, True, id="accepted"),
        pytest.param(TAKEN, False, id="taken"),
        pytest.param(UNGRANTED, False, id="not-granted"),
    ],
)
def test_a_gateway_answers_to_what_the_operator_accepted(record: Record, answers: bool) -> None:
    settled = settle_hosts([recorded(CHURN, 1, record, to_follow)], "cluster.local")
    assert (HOST in settled[CHURN].hosts) is answers


def test_only_namespaces_with_a_grant_get_a_host_however_old_the_others_are() -> None:
    hosts = HostClaims("cluster.local", permits=lambda namespace, _: namespace == "com")
    hosts.put(claim(FRAUD, 1, HOST))
    hosts.put(claim(EXAMPLE, 2, HOST))
    hosts.settle()
    assert hosts.owned[FRAUD].entries == UNGRANTED
    assert hosts.owned[EXAMPLE].entries == ACCEPTED


HOSTS = st.sampled_from(["example.com", "a.example.com", "churn.risk", "fraud.com.svc", "b.example.com"])
Outcome = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]


def outcome(owned: HostOwnership) -> Outcome:
    return owned.hosts, owned.denied, owned.preview


def all_at_once(claims: Iterable[Claim], cluster_domain: str) -> Mapping[ServiceKey, Outcome]:
    """The rule itself, over all claims: what settling one change at a time must come to."""
    ordered = sorted(claims, key=lambda claim: (claim.created, claim.service))
    services = {claim.service for claim in ordered}
    previews = {
        claim.service: cluster_names(preview, cluster_domain)
        for claim in ordered
        if claim.previews and (preview := preview_of(claim.service)) not in services
    }
    short_names = {f"{service.name}.{service.namespace}" for service in services}
    short_names |= {names[0] for names in previews.values()}
    taken: dict[str, ServiceKey] = {}
    for recorded in (True, False):
        for claim in ordered:
            for host in claim.hosts:
                if host not in claim.barred and (host in claim.held) is recorded:
                    taken.setdefault(host, claim.service)
    settled = {claim.service: _settle(claim, cluster_domain, short_names, taken) for claim in ordered}
    for service, names in previews.items():
        hosts, denied, _ = settled[service]
        settled[service] = ((*hosts, *names), denied, names)
    return settled


def _settle(
    claim: Claim, cluster_domain: str, short_names: set[str], taken: Mapping[str, ServiceKey]
) -> Outcome:
    own = cluster_names(claim.service, cluster_domain)
    granted: list[str] = list(own)
    denied: list[str] = []
    for host in dict.fromkeys(claim.hosts):
        if host in granted:
            continue
        reserved = host.endswith((".svc", f".svc.{cluster_domain}")) or host in short_names
        (denied if reserved or taken.get(host) != claim.service else granted).append(host)
    return tuple(granted), tuple(denied), ()


def with_records(each: Claim, states: Sequence[str]) -> Claim:
    """The claim with one of these states recorded for each host: held, barred, or none."""
    recorded = dict(zip(each.hosts, states, strict=True))
    held = frozenset(host for host, state in recorded.items() if state == "held")
    barred = {host: "risk/other" for host, state in recorded.items() if state == "barred"}
    return replace(each, held=held, barred=barred)


CHANGES = st.lists(
    st.one_of(
        st.builds(
            claim,
            st.builds(
                ServiceKey,
                st.sampled_from(["risk", "com"]),
                st.sampled_from(["churn", "churn-preview", "churn-preview-preview", "example"]),
            ),
            st.integers(1, 3),
            HOSTS | st.sampled_from(["churn-preview.risk", "churn-preview-preview.risk", "example.risk"]),
            HOSTS,
        )
        .flatmap(lambda each: st.booleans().map(lambda previews: replace(each, previews=previews)))
        .flatmap(
            lambda each: st.lists(st.sampled_from(["none", "held", "barred"]), min_size=2, max_size=2).map(
                lambda states: with_records(each, states)
            )
        ),
        st.builds(ServiceKey, st.sampled_from(["risk", "com"]), st.sampled_from(["churn", "churn-preview"])),
    ),
    max_size=12,
)


@given(CHANGES)
def test_settling_each_change_comes_to_the_same_as_settling_all_claims(
    changes: list[Claim | ServiceKey],
) -> None:
    hosts, claims = HostClaims("cluster.local"), dict[ServiceKey, Claim]()
    before: dict[ServiceKey, HostOwnership] = {}
    for change in changes:
        if isinstance(change, Claim):
            hosts.put(change)
            claims[change.service] = change
        else:
            hosts.remove(change)
            claims.pop(change, None)
        changed = hosts.settle()
        expected = all_at_once(claims.values(), "cluster.local")
        assert {key: outcome(owned) for key, owned in hosts.owned.items()} == expected
        assert changed == {
            key for key in before.keys() | expected.keys() if before.get(key) != hosts.owned.get(key)
        }
        before = dict(hosts.owned)


def test_one_more_service_settles_no_other_of_a_large_fleet(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts, settled = HostClaims("cluster.local"), list[ServiceKey]()
    outcome = HostClaims._outcome

    def counted(claims: HostClaims, each: Claim) -> HostOwnership:
        settled.append(each.service)
        return outcome(claims, each)

    monkeypatch.setattr(HostClaims, "_outcome", counted)
    for number in range(500):
        hosts.put(claim(ServiceKey("risk", f"s{number}"), 1, f"s{number}.example.com"))
        hosts.settle()
    assert len(settled) == 500
