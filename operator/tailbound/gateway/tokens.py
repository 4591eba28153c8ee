"""Who may read /observed: the operator's ServiceAccount, by a token made for this audience."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from hashlib import sha256
from typing import Any, Protocol, TypeVar

from tailbound.api.names import OBSERVED_AUDIENCE

K = TypeVar("K")
V = TypeVar("V")

# A token that was revoked is refused after this time at the latest.
ALLOWED_SECONDS = 60.0
DENIED_SECONDS = 10.0
MOST_REMEMBERED = 256
MOST_ALLOWED = 16
MOST_REVIEWS = 8
"""At a time, one of them for addresses that the operator has asked from."""
PENALTY_SECONDS = 1.0
"""After a token that was not allowed, before another one of its address is reviewed."""
REVIEW_TIMEOUT_SECONDS = 5.0


class TokenVerdict(Enum):
    """Outcome for one request."""

    ALLOWED = auto()
    UNAUTHENTICATED = auto()  # no token, or none that is valid for this audience
    FORBIDDEN = auto()  # another account
    BUSY = auto()  # not known yet: it has to wait for reviews of others


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

    | the token                                                     | verdict             |
    |---------------------------------------------------------------|---------------------|
    | is missing                                                    | UNAUTHENTICATED     |
    | was judged before                                             | as then             |
    | is under review                                               | that of the review  |
    | comes while another one of its address is under review        | BUSY                |
    | comes within PENALTY_SECONDS of one that was not allowed      | BUSY                |
    | comes while MOST_REVIEWS are under way                        | BUSY                |
    | any other                                                     | it is reviewed      |

    Tokens that were allowed are remembered apart: no flood of others drives them out. `check` raises what the
    reviewer raises, or TimeoutError, if the API server cannot be asked.
    """

    def __init__(self, reviewer: TokenReviewer, account: str, clock: Callable[[], float]) -> None:
        self._reviewer = reviewer
        self._account = account
        self._clock = clock
        self._allowed = _Memory(MOST_ALLOWED, clock)
        self._denied = _Memory(MOST_REMEMBERED, clock)
        self._reviews: dict[bytes, asyncio.Task[TokenVerdict]] = {}
        self._asking: set[str] = set()
        """Addresses with a token under review."""
        self._penalties: dict[str, float] = {}
        self._trusted: dict[str, None] = {}
        """Addresses of tokens that were allowed, the newest last."""

    async def check(self, authorization: str | None, address: str) -> TokenVerdict:
        """The verdict over an Authorization header that came from this address."""
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return TokenVerdict.UNAUTHENTICATED
        digest = sha256(token.strip().encode()).digest()
        known = self._allowed.get(digest) or self._denied.get(digest)
        if known is not None:
            return known
        if digest not in self._reviews:
            if self._is_busy(address):
                return TokenVerdict.BUSY
            self._asking.add(address)
            self._reviews[digest] = asyncio.create_task(self._review(token.strip(), digest, address))
        return await asyncio.shield(self._reviews[digest])

    def _is_busy(self, address: str) -> bool:
        most = MOST_REVIEWS if address in self._trusted else MOST_REVIEWS - 1
        waits = self._clock() < self._penalties.get(address, 0.0)
        return waits or address in self._asking or len(self._reviews) >= most

    async def _review(self, token: str, digest: bytes, address: str) -> TokenVerdict:
        try:
            async with asyncio.timeout(REVIEW_TIMEOUT_SECONDS):
                status = await self._reviewer.review_token(token, (OBSERVED_AUDIENCE,))
        finally:
            self._asking.discard(address)
            del self._reviews[digest]
        verdict = judge(status, self._account)
        if verdict is TokenVerdict.ALLOWED:
            self._allowed.put(digest, verdict, ALLOWED_SECONDS)
            _put(self._trusted, address, None, MOST_ALLOWED)
        else:
            self._denied.put(digest, verdict, DENIED_SECONDS)
            _put(self._penalties, address, self._clock() + PENALTY_SECONDS, MOST_REMEMBERED)
        return verdict


class _Memory:
    """At most `most` verdicts by digest, each for a while; the oldest goes first."""

    def __init__(self, most: int, clock: Callable[[], float]) -> None:
        self._most = most
        self._clock = clock
        self._verdicts: dict[bytes, _Remembered] = {}

    def __len__(self) -> int:
        return len(self._verdicts)

    def get(self, digest: bytes) -> TokenVerdict | None:
        remembered = self._verdicts.get(digest)
        return remembered.verdict if remembered is not None and self._clock() < remembered.until else None

    def put(self, digest: bytes, verdict: TokenVerdict, seconds: float) -> None:
        _put(self._verdicts, digest, _Remembered(verdict, self._clock() + seconds), self._most)


def _put(known: dict[K, V], key: K, value: V, most: int) -> None:
    """Set a value as the newest one, and drop the oldest ones beyond the limit."""
    known.pop(key, None)
    if len(known) >= most:
        del known[next(iter(known))]
    known[key] = value


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
