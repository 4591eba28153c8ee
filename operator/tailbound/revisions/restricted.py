"""The check that a rendered pod gives no container more than the Pod Security profile "restricted" allows.

A runtime's author may be allowed to write runtimes and not to run privileged pods: what the API server
would let the operator create is more than what such an author may ask for. The rules are those of the
profile, plus our own that the service account is the one of the InferenceService.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

Pod: TypeAlias = Mapping[str, Any]

_VOLUMES: Final = frozenset({"emptyDir"})
_HOST_FIELDS: Final = ("hostNetwork", "hostPID", "hostIPC", "nodeName", "hostAliases")
_PROBES: Final = ("startupProbe", "readinessProbe", "livenessProbe")


def violations(pod: Pod, service_account: str | None) -> tuple[str, ...]:
    """What the pod spec asks for and may not have, each with its field; empty if nothing."""
    found = [*_pod_level(pod, service_account)]
    for group in ("initContainers", "containers"):
        for index, container in enumerate(pod.get(group, ())):
            for rule in _CONTAINER_RULES:
                found.extend(rule(container, f"{group}[{index}]"))
    return tuple(found)


def _pod_level(pod: Pod, service_account: str | None) -> Iterator[str]:
    for field in _HOST_FIELDS:
        if pod.get(field):
            yield f"{field} is not allowed"
    if pod.get("ephemeralContainers"):
        yield "ephemeralContainers are not allowed"
    if pod.get("serviceAccountName") != service_account:
        yield f"serviceAccountName {pod.get('serviceAccountName')!r} is not the service's own"
    if pod.get("automountServiceAccountToken") is not False:
        yield "automountServiceAccountToken must be false"
    for index, volume in enumerate(pod.get("volumes", ())):
        for kind in sorted(volume.keys() - {"name"} - _VOLUMES):
            yield f"volumes[{index}].{kind} is not allowed: only emptyDir is"
    security = pod.get("securityContext", {})
    if security.get("runAsNonRoot") is not True:
        yield "securityContext.runAsNonRoot must be true"
    if security.get("seccompProfile", {}).get("type") != "RuntimeDefault":
        yield "securityContext.seccompProfile.type must be RuntimeDefault"
    if security.get("runAsUser") == 0:
        yield "securityContext.runAsUser must not be 0"
    if security.get("sysctls"):
        yield "securityContext.sysctls are not allowed"


def _privileges(container: Pod, path: str) -> Iterator[str]:
    security = container.get("securityContext", {})
    if security.get("privileged"):
        yield f"{path}.securityContext.privileged is not allowed"
    if security.get("allowPrivilegeEscalation") is not False:
        yield f"{path}.securityContext.allowPrivilegeEscalation must be false"
    if security.get("readOnlyRootFilesystem") is not True:
        yield f"{path}.securityContext.readOnlyRootFilesystem must be true"
    capabilities = security.get("capabilities", {})
    if capabilities.get("drop") != ["ALL"] or capabilities.get("add"):
        yield f"{path}.securityContext.capabilities must drop ALL and add none"


def _own_security(container: Pod, path: str) -> Iterator[str]:
    security = container.get("securityContext", {})
    for field in (
        "seccompProfile",
        "runAsUser",
        "runAsNonRoot",
        "procMount",
        "seLinuxOptions",
        "appArmorProfile",
    ):
        if field in security:
            yield f"{path}.securityContext.{field} is not allowed: the pod's holds"


def _host_ports(container: Pod, path: str) -> Iterator[str]:
    for index, port in enumerate(container.get("ports", ())):
        if port.get("hostPort") or port.get("hostIP"):
            yield f"{path}.ports[{index}]: hostPort and hostIP are not allowed"


def _probe_hosts(container: Pod, path: str) -> Iterator[str]:
    handlers = [(name, container.get(name) or {}) for name in _PROBES]
    handlers += [(f"lifecycle.{name}", hook) for name, hook in (container.get("lifecycle") or {}).items()]
    for name, handler in handlers:
        for action in ("httpGet", "tcpSocket"):
            if (handler.get(action) or {}).get("host"):
                yield f"{path}.{name}.{action}.host is not allowed: probes go to the pod itself"


def _secrets(container: Pod, path: str) -> Iterator[str]:
    if container.get("envFrom"):
        yield f"{path}.envFrom is not allowed"
    for index, variable in enumerate(container.get("env", ())):
        if "valueFrom" in variable:
            yield f"{path}.env[{index}].valueFrom is not allowed: write a value"


_CONTAINER_RULES: Final[tuple[Callable[[Pod, str], Iterator[str]], ...]] = (
    _privileges,
    _own_security,
    _host_ports,
    _probe_hosts,
    _secrets,
)
