"""What is refused in HostGrants."""

from typing import Any

from tests.api_cases.objects import HOST_GRANT
from tests.api_cases.refusal import Refusal

_NAMESPACE = (
    "names no namespaces: write a name, the beginning of names and '*' as in team-a-*, or '*' for every "
    "namespace"
)
_HOST = (
    "names no hosts: write a full DNS name in lower case, '*.' and such a name for everything below it, or "
    "'*' for every host"
)


def _grant(name: str, path: str, value: Any, message: str) -> Refusal:
    return Refusal(name, HOST_GRANT, path, [value], f"{path}[0]", f"'{value}' {message}")


HOST_GRANT_REFUSALS = (
    _grant("namespace-with-a-dot", "spec.namespaces", "a.b", _NAMESPACE),
    _grant("star-in-the-middle-of-a-namespace", "spec.namespaces", "a*b", _NAMESPACE),
    _grant("host-without-a-dot", "spec.hosts", "churn", _HOST),
    _grant("star-inside-a-label", "spec.hosts", "a*.example.com", _HOST),
    _grant("star-in-the-middle-of-a-host", "spec.hosts", "a.*.example.com", _HOST),
    _grant("host-with-a-port", "spec.hosts", "a.example.com:80", _HOST),
)
