"""Who may read /observed, and how often the API server is asked about it."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from tailbound.api.names import OBSERVED_AUDIENCE
from tailbound.gateway.tokens import (
    ALLOWED_SECONDS,
    DENIED_SECONDS,
    MOST_REMEMBERED,
    MOST_REVIEWS,
    PENALTY_SECONDS,
    Gatekeeper,
    TokenVerdict,
    judge,
)

OPERATOR = "system:serviceaccount:tailbound-system:tailbound-operator"
ADDRESS, STRANGER = "10.0.0.1", "10.0.0.2"


def status(user: str = OPERATOR, **changes: Any) -> Mapping[str, Any]:
    return {"authenticated": True, "audiences": [OBSERVED_AUDIENCE], "user": {"username": user}, **changes}


@pytest.mark.parametrize(
    ("reviewed", "verdict"),
    [
        (status(), TokenVerdict.ALLOWED),
        (status("system:serviceaccount:risk:default"), TokenVerdict.FORBIDDEN),
        (status(authenticated=False), TokenVerdict.UNAUTHENTICATED),
        (status(audiences=["https://kubernetes.default.svc"]), TokenVerdict.UNAUTHENTICATED),
        (status(audiences=None), TokenVerdict.UNAUTHENTICATED),
        ({**status(), "user": None}, TokenVerdict.FORBIDDEN),
        ({"error": "token expired"}, TokenVerdict.UNAUTHENTICATED),
        ({}, TokenVerdict.UNAUTHENTICATED),
    ],
)
def test_judge(reviewed: Mapping[str, Any], verdict: TokenVerdict) -> None:
    assert judge(reviewed, OPERATOR) is verdict


class Reviewer:
    """Knows one token."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.hang: asyncio.Event | None = None

    async def review_token(self, token: str, audiences: Sequence[str]) -> Mapping[str, Any]:
        assert list(audiences) == [OBSERVED_AUDIENCE]
        self.asked.append(token)
        await asyncio.sleep(0)
        if self.hang is not None and token != "good":
            await self.hang.wait()
        return status() if token == "good" else {"authenticated": False}


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer  ", "Basic good", "good"])
async def test_without_a_bearer_token_nobody_is_asked(header: str | None) -> None:
    reviewer = Reviewer()
    assert (
        await Gatekeeper(reviewer, OPERATOR, Clock()).check(header, ADDRESS) is TokenVerdict.UNAUTHENTICATED
    )
    assert reviewer.asked == []


@pytest.mark.parametrize(
    ("token", "verdict", "seconds"),
    [("good", TokenVerdict.ALLOWED, ALLOWED_SECONDS), ("bad", TokenVerdict.UNAUTHENTICATED, DENIED_SECONDS)],
)
async def test_an_answer_is_remembered_for_a_while(token: str, verdict: TokenVerdict, seconds: float) -> None:
    reviewer, clock = Reviewer(), Clock()
    gatekeeper = Gatekeeper(reviewer, OPERATOR, clock)
    checks = await asyncio.gather(*(gatekeeper.check(f"Bearer {token}", ADDRESS) for _ in range(5)))
    assert checks == [verdict] * 5
    clock.now = seconds - 0.1
    await gatekeeper.check(f"bearer {token}", ADDRESS)
    assert len(reviewer.asked) == 1
    clock.now = seconds
    await gatekeeper.check(f"Bearer {token}", ADDRESS)
    assert len(reviewer.asked) == 2


async def test_a_flood_of_wrong_tokens_takes_no_memory() -> None:
    gatekeeper = Gatekeeper(Reviewer(), OPERATOR, Clock())
    for number in range(MOST_REMEMBERED * 2):
        await gatekeeper.check(f"Bearer {number}", f"10.0.{number // 256}.{number % 256}")
    remembered = (gatekeeper._denied, gatekeeper._penalties, gatekeeper._asking, gatekeeper._reviews)
    assert [len(each) for each in remembered] == [MOST_REMEMBERED, MOST_REMEMBERED, 0, 0]


async def test_a_flood_of_wrong_tokens_neither_drives_out_the_operators_nor_reaches_the_api_server() -> None:
    reviewer, clock = Reviewer(), Clock()
    gatekeeper = Gatekeeper(reviewer, OPERATOR, clock)
    assert await gatekeeper.check("Bearer good", ADDRESS) is TokenVerdict.ALLOWED
    flood = [gatekeeper.check(f"Bearer {number}", STRANGER) for number in range(500)]
    verdicts = Counter(await asyncio.gather(*flood))
    assert verdicts == {TokenVerdict.UNAUTHENTICATED: 1, TokenVerdict.BUSY: 499}
    assert await gatekeeper.check("Bearer good", ADDRESS) is TokenVerdict.ALLOWED
    assert len(reviewer.asked) == 2
    clock.now = PENALTY_SECONDS
    assert await gatekeeper.check("Bearer 500", STRANGER) is TokenVerdict.UNAUTHENTICATED


async def test_slow_reviews_of_many_addresses_leave_one_to_the_operators() -> None:
    """Its token is no longer remembered, and every other review hangs."""
    reviewer, clock = Reviewer(), Clock()
    gatekeeper = Gatekeeper(reviewer, OPERATOR, clock)
    await gatekeeper.check("Bearer good", ADDRESS)
    clock.now = ALLOWED_SECONDS
    reviewer.hang = asyncio.Event()
    flood = [
        asyncio.create_task(gatekeeper.check(f"Bearer {number}", f"10.9.0.{number}"))
        for number in range(MOST_REVIEWS * 2)
    ]
    await asyncio.sleep(0)
    assert await gatekeeper.check("Bearer good", ADDRESS) is TokenVerdict.ALLOWED
    reviewer.hang.set()
    verdicts = Counter(await asyncio.gather(*flood))
    assert verdicts[TokenVerdict.BUSY] == MOST_REVIEWS + 1


async def test_an_unreachable_api_server_is_no_verdict() -> None:
    class Unreachable:
        async def review_token(self, token: str, audiences: Sequence[str]) -> Mapping[str, Any]:
            raise OSError("no route to host")

    with pytest.raises(OSError, match="no route"):
        await Gatekeeper(Unreachable(), OPERATOR, Clock()).check("Bearer good", ADDRESS)
