"""Queries to the Prometheus that the installation names. What it doesn't say is never taken for zero.

For one signal of the whole fleet, ask once per tick and take every revision's value from the one answer:

    answer = await prometheus.query(
        "sum by (namespace, service, revision) (rate(tailbound_requests_total[30s]))"
    )
    rates = answer if isinstance(answer, Unknown) else fleet_of(answer)
    rate = rates if isinstance(rates, Unknown) else rates.of("risk", "churn", "churn-r1-abcdef")
    # Value(at=…, number=…), or Unknown with the reason

The reading is only as fresh as the query demands: an instant selector finds samples that are minutes old,
while rate(…[30s]) finds nothing where nothing was scraped for so long. Such a revision is Unknown.
"""

import asyncio
import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from tailbound.objects.unknown import Unknown

TIMEOUT_SECONDS: Final = 2.0
# A series of one value has about 300 bytes: a fleet of 5,000 services needs a twentieth of this.
MOST_BYTES: Final = 2**26
# Threads that a Prometheus which does not answer can hold up.
_MOST_AT_ONCE: Final = 4
_LONGEST_REASON: Final = 300


class Value(NamedTuple):
    """A number, and the Unix time in seconds that it is of."""

    at: float
    number: float


@dataclass(frozen=True)
class Series:
    """Values under one set of labels, the oldest first."""

    labels: Mapping[str, str]
    values: tuple[Value, ...]
    no_number: str = ""
    """What the newest value is instead of a number: NaN, +Inf or -Inf. Empty if it is a number."""


class RevisionName(NamedTuple):
    """The label that tells the values of a fleet apart."""

    namespace: str
    service: str
    revision: str


@dataclass(frozen=True)
class FleetSignal:
    """One signal of every revision that has it."""

    values: Mapping[tuple[str, str, str], Value] = field(default_factory=dict)
    """By the parts of a RevisionName."""

    def of(self, namespace: str, service: str, revision: str) -> Value | Unknown:
        """The value of one revision."""
        found = self.values.get((namespace, service, revision))
        return Unknown(f"Prometheus has no fresh series of {revision}") if found is None else found


class Queries(Protocol):
    """A Prometheus."""

    async def query(
        self, expression: str, *, timeout_seconds: float | None = None
    ) -> tuple[Series, ...] | Unknown:
        """The series that an expression gives."""
        ...


class Prometheus:
    """A client. Queries run in threads of its own, and none is waited for longer than `timeout_seconds`.

    More than a few at once wait for their turn first, however long: only the wait for an answer is limited.
    An answer of more than `most_bytes` is not read to its end, nor one that comes too slowly.
    """

    def __init__(
        self, url: str, timeout_seconds: float = TIMEOUT_SECONDS, most_bytes: int = MOST_BYTES
    ) -> None:
        self._url = url.rstrip("/")
        self._timeout_seconds = timeout_seconds
        self._most_bytes = most_bytes
        self._threads = ThreadPoolExecutor(_MOST_AT_ONCE, thread_name_prefix="prometheus")
        self._turns = asyncio.Semaphore(_MOST_AT_ONCE)

    async def query(
        self, expression: str, *, timeout_seconds: float | None = None
    ) -> tuple[Series, ...] | Unknown:
        """The answer to a PromQL expression, evaluated now by Prometheus' own clock.

        A scalar is one series without labels. A range selector gives the raw samples with their own times.
        `timeout_seconds` takes the place of the client's own.
        """
        loop, limit = asyncio.get_running_loop(), timeout_seconds or self._timeout_seconds
        async with self._turns:
            try:
                async with asyncio.timeout(limit):
                    return await loop.run_in_executor(self._threads, self._ask, expression, limit)
            except TimeoutError:
                return Unknown(f"Prometheus does not answer within {limit:g} s")

    def close(self) -> None:
        """Wait for no thread: each ends by its own time-out."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _ask(self, expression: str, limit: float) -> tuple[Series, ...] | Unknown:
        # Here, in the thread: the import takes a quarter of a second, and most installations never need it.
        from prometheus_api_client.exceptions import PrometheusApiClientException
        from prometheus_api_client.prometheus_connect import PrometheusConnect
        from requests import RequestException

        from tailbound.telemetry.bounded import BoundedSession, TooLargeError

        session = BoundedSession(self._most_bytes, limit)
        client = PrometheusConnect(self._url, session=session, timeout=math.ceil(limit))
        try:
            with client:
                params = {"timeout": f"{math.ceil(limit * 1000)}ms"}  # whole numbers only
                return series_of(client.custom_query(expression, params=params))
        except PrometheusApiClientException as error:
            return Unknown(f"Prometheus refuses the query: {error}"[:_LONGEST_REASON])
        except TooLargeError:
            return Unknown(
                f"the answer of Prometheus has more than {self._most_bytes} bytes: ask for fewer series"
            )
        except RequestException as error:
            # Not its words: they name ports and objects, and no two are alike.
            return Unknown(f"Prometheus is not reached ({type(error).__name__})")
        except (KeyError, TypeError, ValueError) as error:
            return Unknown(f"the answer of Prometheus is not understood: {error!r}"[:_LONGEST_REASON])


def series_of(result: Any) -> tuple[Series, ...]:
    """`data.result` of an answer. Raises KeyError, TypeError or ValueError if it is none.

    NaN and infinities are no values: they are what a division by nothing gives.
    """
    if result and not isinstance(result[0], Mapping):
        return (_instant({}, result),)
    return tuple(
        _range(each["metric"], each["values"])
        if "values" in each
        else _instant(each["metric"], each["value"])
        for each in result
    )


def _instant(labels: Mapping[str, str], pair: Any) -> Series:
    at, written = pair
    value = Value(float(at), float(written))
    return Series(labels, (value,)) if math.isfinite(value.number) else Series(labels, (), str(written))


def _range(labels: Mapping[str, str], pairs: Any) -> Series:
    values = tuple(Value(float(at), float(number)) for at, number in pairs)
    numbers = tuple(value for value in values if math.isfinite(value.number))
    return Series(labels, numbers, "" if values[-1:] == numbers[-1:] else str(pairs[-1][1]))


def fleet_of(answer: Sequence[Series]) -> FleetSignal | Unknown:
    """Every revision's newest value.

    Unknown as a whole if a series does not name its revision, or two name the same one: the query is
    wrong, and half of its answer would be, too.
    """
    values: dict[tuple[str, str, str], Value] = {}
    for series in answer:
        labels = series.labels
        names = (labels.get("namespace", ""), labels.get("service", ""), labels.get("revision", ""))
        if not all(names):
            return Unknown(f"the query has to group by {', '.join(RevisionName._fields)}")
        if names in values:
            return Unknown(f"the query has several series of {'/'.join(names)}")
        if series.values:
            values[names] = series.values[-1]
    return FleetSignal(values)
