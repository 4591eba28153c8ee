"""Which service answers to which host."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tailbound.traffic.hosts import Claim, cluster_names, settle_hosts
from tailbound.traffic.model import ServiceKey

CHURN, FRAUD = ServiceKey("risk", "churn"), ServiceKey("risk", "fraud")
EXAMPLE = ServiceKey("com", "example")


def claim(service: ServiceKey, day: int, *hosts: str) -> Claim:
    return Claim(service, datetime(2026, 1, day, tzinfo=UTC), hosts)


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


def test_a_service_that_comes_later_takes_its_cluster_name_back() -> None:
    older, newer = claim(CHURN, 1, "example.com"), claim(EXAMPLE, 2)
    settled = settle_hosts([older, newer], "cluster.local")
    assert settled[CHURN].denied == ("example.com",)
    assert "example.com" in settled[EXAMPLE].hosts


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


KEYS = st.builds(ServiceKey, st.sampled_from(["risk", "com"]), st.sampled_from(["churn", "fraud", "example"]))
HOSTS = st.sampled_from(["example.com", "a.example.com", "churn.risk", "fraud.com.svc", "b.example.com"])
CLAIMS = st.lists(
    st.builds(claim, KEYS, st.integers(1, 3), HOSTS, HOSTS), unique_by=lambda item: item.service, max_size=6
)


@given(CLAIMS, st.randoms())
def test_one_owner_per_host_whatever_the_order(claims: list[Claim], chance: object) -> None:
    settled = settle_hosts(claims, "cluster.local")
    owned = [host for ownership in settled.values() for host in ownership.hosts]
    assert len(owned) == len(set(owned))
    for item in claims:
        mine = settled[item.service]
        assert set(cluster_names(item.service, "cluster.local")) <= set(mine.hosts)
        assert set(item.hosts) <= set(mine.hosts) | set(mine.denied)
    shuffled = list(claims)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    assert settle_hosts(shuffled, "cluster.local") == settled
