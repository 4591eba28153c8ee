"""Who may read /observed: the operator's ServiceAccount, by a token made for this audience."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from hashlib import sha256
from typing import Any, Protocol

from tailbound.api.names import OBSERVED_AUDIENCE

# A token that was revoked is refused after this time at the latest.
ALLOWED_SECONDS = 60.0
DENIED_SECONDS = 10.0
MOST_REMEMBERED = 256
REVIEW_TIMEOUT_SECONDS = 5.0


class TokenVerdict(Enum):
    """Outcome for one request."""

    ALLOWED = auto()
    UNAUTHENTICATED = auto()  # no token, or none that is valid for this audience
    FORBIDDEN = auto()  # another account


class TokenReviewer(Protocol):
    """The part of the cluster that is needed here."""

    async def review_token(self, token: str, audiences: Sequence[str]) -> Mapping[str, Any]:
        """`status` of a TokenReview."""
        ...


@dataclass(frozen=True)
class _Remembered:
    verdict: TokenVerdict
    until: float


class Gatekeeper:
    """Asks the API server about tokens, and remembers its answers for a short while.

    `check` raises what the reviewer raises, or TimeoutError, if the API server cannot be asked.
    """

    def __init__(self, reviewer: TokenReviewer, account: str, clock: Callable[[], float]) -> None:
        self._reviewer = reviewer
        self._account = account
        self._clock = clock
        self._remembered: dict[bytes, _Remembered] = {}
        self._one_at_a_time = asyncio.Lock()

    async def check(self, authorization: str | None) -> TokenVerdict:
        """The verdict over an Authorization header."""
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return TokenVerdict.UNAUTHENTICATED
        digest = sha256(token.strip().encode()).digest()
        if (known := self._known(digest)) is not None:
            return known
        # A client that floods us with wrong tokens must not flood the API server.
        async with self._one_at_a_time:
            if (known := self._known(digest)) is not None:
                return known
            async with asyncio.timeout(REVIEW_TIMEOUT_SECONDS):
                status = await self._reviewer.review_token(token.strip(), (OBSERVED_AUDIENCE,))
            verdict = judge(status, self._account)
            self._remember(digest, verdict)
            return verdict

    def _known(self, digest: bytes) -> TokenVerdict | None:
        remembered = self._remembered.get(digest)
        return remembered.verdict if remembered is not None and self._clock() < remembered.until else None

    def _remember(self, digest: bytes, verdict: TokenVerdict) -> None:
        seconds = ALLOWED_SECONDS if verdict is TokenVerdict.ALLOWED else DENIED_SECONDS
        self._remembered.pop(digest, None)
        if len(self._remembered) >= MOST_REMEMBERED:
            del self._remembered[next(iter(self._remembered))]
        self._remembered[digest] = _Remembered(verdict, self._clock() + seconds)


def judge(status: Mapping[str, Any], account: str) -> TokenVerdict:
    """The verdict over the status of a TokenReview.

    | authenticated | audience is ours | user is the operator | verdict         |
    |---------------|------------------|----------------------|-----------------|
    | no            |                  |                      | UNAUTHENTICATED |
    | yes           | no               |                      | UNAUTHENTICATED |
    | yes           | yes              | no                   | FORBIDDEN       |
    | yes           | yes              | yes                  | ALLOWED         |
    """
    if not status.get("authenticated") or OBSERVED_AUDIENCE not in (status.get("audiences") or ()):
        return TokenVerdict.UNAUTHENTICATED
    return (
        TokenVerdict.ALLOWED
        if (status.get("user") or {}).get("username") == account
        else TokenVerdict.FORBIDDEN
    )
