"""Who may read /observed, and how often the API server is asked about it."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from tailbound.api.names import OBSERVED_AUDIENCE
from tailbound.gateway.tokens import (
    ALLOWED_SECONDS,
    DENIED_SECONDS,
    MOST_REMEMBERED,
    Gatekeeper,
    TokenVerdict,
    judge,
)

OPERATOR = "system:serviceaccount:tailbound-system:tailbound-operator"


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

    async def review_token(self, token: str, audiences: Sequence[str]) -> Mapping[str, Any]:
        assert list(audiences) == [OBSERVED_AUDIENCE]
        self.asked.append(token)
        await asyncio.sleep(0)
        return status() if token == "good" else {"authenticated": False}


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer  ", "Basic good", "good"])
async def test_without_a_bearer_token_nobody_is_asked(header: str | None) -> None:
    reviewer = Reviewer()
    assert await Gatekeeper(reviewer, OPERATOR, Clock()).check(header) is TokenVerdict.UNAUTHENTICATED
    assert reviewer.asked == []


@pytest.mark.parametrize(
    ("token", "verdict", "seconds"),
    [("good", TokenVerdict.ALLOWED, ALLOWED_SECONDS), ("bad", TokenVerdict.UNAUTHENTICATED, DENIED_SECONDS)],
)
async def test_an_answer_is_remembered_for_a_while(token: str, verdict: TokenVerdict, seconds: float) -> None:
    reviewer, clock = Reviewer(), Clock()
    gatekeeper = Gatekeeper(reviewer, OPERATOR, clock)
    checks = await asyncio.gather(*(gatekeeper.check(f"Bearer {token}") for _ in range(5)))
    assert checks == [verdict] * 5
    clock.now = seconds - 0.1
    await gatekeeper.check(f"bearer {token}")
    assert len(reviewer.asked) == 1
    clock.now = seconds
    await gatekeeper.check(f"Bearer {token}")
    assert len(reviewer.asked) == 2


async def test_a_flood_of_wrong_tokens_takes_no_memory() -> None:
    gatekeeper = Gatekeeper(Reviewer(), OPERATOR, Clock())
    for number in range(MOST_REMEMBERED * 2):
        await gatekeeper.check(f"Bearer {number}")
    assert len(gatekeeper._remembered) == MOST_REMEMBERED


async def test_an_unreachable_api_server_is_no_verdict() -> None:
    class Unreachable:
        async def review_token(self, token: str, audiences: Sequence[str]) -> Mapping[str, Any]:
            raise OSError("no route to host")

    with pytest.raises(OSError, match="no route"):
        await Gatekeeper(Unreachable(), OPERATOR, Clock()).check("Bearer good")
