"""The only errors that leave the transport, and how a refusal of the API server becomes one of them.

`Transient` may be tried again later, `Conflict` means that the decision was made on old facts, and
`Terminal` will be refused again until something is changed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


class KubeError(Exception):
    """Base of every error of the transport."""


class Transient(KubeError):  # noqa: N818 - what to do about it is the better name
    """The request may succeed later unchanged. `retry_after_seconds` is the server's wish, if it has one."""

    def __init__(self, message: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class NamespaceEnds(Transient):
    """The namespace is being deleted: nothing can be created in it, and what is there goes with it."""


class NotAdmittedYet(Transient):
    """Something besides the object has to be mended first: Tailbound lacks a right, or a webhook is away."""


class NotServed(Transient):
    """The API server does not serve this kind: a CRD or a group of its own is missing."""


class Expired(Transient):
    """The resourceVersion to list or watch from is too old (410): list again."""


class Conflict(KubeError):  # noqa: N818
    """The object is not the one that the write was decided on: look again, decide again."""


class Terminal(KubeError):  # noqa: N818
    """The API server refuses the request for good: an invalid object, or an admission rule."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class NotAdmitted(Terminal):
    """A ResourceQuota or an admission rule of the namespace refuses the object."""


class NameConflict(Terminal):
    """An object of this name has another owner. It was not touched."""

    def __init__(self, kind: str, name: str, holder: str) -> None:
        super().__init__(
            f"{kind} {name} exists and belongs to {holder}; "
            "delete or rename it, or rename the InferenceService"
        )
        self.kind = kind
        self.name = name
        self.holder = holder


@dataclass(frozen=True)
class RefusedRequest:
    """What an unsuccessful response said."""

    status: int
    reason: str
    message: str
    causes: tuple[str, ...] = ()
    retry_after_seconds: float | None = None


def refusal(status: int, body: Any, retry_after: str | None) -> RefusedRequest:
    """Read a Status object, or whatever else came as the body of an unsuccessful response."""
    document: Mapping[str, Any] = body if isinstance(body, Mapping) else {}
    details = document.get("details") or {}
    seconds = retry_after if retry_after is not None else details.get("retryAfterSeconds")
    return RefusedRequest(
        status=status,
        reason=str(document.get("reason") or ""),
        message=str(document.get("message") or body or f"HTTP status {status}")[:2000],
        causes=tuple(str(cause.get("reason")) for cause in details.get("causes") or ()),
        retry_after_seconds=_seconds(seconds),
    )


def _seconds(value: Any) -> float | None:
    try:
        return max(0.0, float(value))
    except (TypeError, ValueError):
        return None  # absent, or an HTTP date, which the API server never sends


# What the refusal is                                         | what it becomes
# ------------------------------------------------------------|---------------------------------------------
# 410, or reason Expired                                      | Expired
# 409                                                         | Conflict
# 404                                                         | Conflict: what the request spoke of is gone
# 422 about metadata.uid                                      | Conflict: another object has the name now
# 403 exceeded quota                                          | NotAdmitted
# 403 in a namespace that is being deleted                    | NamespaceEnds: the service goes with it
# 403 by RBAC ("User … cannot …")                             | NotAdmittedYet
# 500 of a webhook that was not reached                       | NotAdmittedYet
# 403 else                                                    | NotAdmitted: an admission rule refuses it
# 400, 405, 406, 413, 415, 422                                | Terminal
# everything else: 401, 408, 429, 5xx                         | Transient
_RULES: tuple[tuple[Callable[[RefusedRequest], bool], Callable[[RefusedRequest], KubeError]], ...] = (
    (lambda r: r.status == 410 or r.reason == "Expired", lambda r: Expired(r.message)),
    (lambda r: r.status in (404, 409), lambda r: Conflict(r.message)),
    (lambda r: r.status == 422 and "metadata.uid" in r.message, lambda r: Conflict(r.message)),
    (lambda r: r.status == 403 and "exceeded quota" in r.message, lambda r: NotAdmitted(r.message, 403)),
    (lambda r: r.status == 403 and "NamespaceTerminating" in r.causes, lambda r: NamespaceEnds(r.message)),
    (lambda r: r.status == 403 and " cannot " in r.message, lambda r: NotAdmittedYet(r.message)),
    (
        lambda r: r.status == 500 and "failed calling webhook" in r.message,
        lambda r: NotAdmittedYet(r.message),
    ),
    (lambda r: r.status == 403, lambda r: NotAdmitted(r.message, 403)),
    (lambda r: r.status in (400, 405, 406, 413, 415, 422), lambda r: Terminal(r.message, r.status)),
)


def error_for(answer: RefusedRequest) -> KubeError:
    """The error that an unsuccessful response stands for, by the table above."""
    for matches, make in _RULES:
        if matches(answer):
            return make(answer)
    return Transient(f"HTTP status {answer.status}: {answer.message}", answer.retry_after_seconds)
