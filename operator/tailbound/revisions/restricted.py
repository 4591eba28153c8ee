"""The check that a pod template gives no container more than the Pod Security profile "restricted" allows.

It runs when a template is rendered and whenever a stored one is read: the author of a runtime, and any user
with write access to ControllerRevisions, must not get pods from the operator that they may not create
themselves. A field that Tailbound renders for no pod is refused, whatever it means. Of the others, the rules
are those of the profile, plus our own: the service account is the one of the InferenceService, and affinity
is to pods of its namespace alone. Fields are read as they are, and not through the views: a value of a wrong
type must count as set, not as absent.
"""

from collections.abc import Callable, Iterator
from typing import Final

from tailbound.api.model_source import CLAIM_PREFIX
from tailbound.api.names import PROFILE_ANNOTATIONS
from tailbound.api.plugin_keys import DEVICE_VARIABLES, is_acted_on
from tailbound.api.pod_parts import FILES_VOLUME, RUNTIME_VOLUME
from tailbound.api.runtime_contract import CA_VOLUME, CACHE_VOLUME, CREDENTIALS_VOLUME, FETCH_CONTAINER
from tailbound.objects.fields import Object
from tailbound.objects.metadata import KubernetesObject

# A Secret or a ConfigMap could be any of the namespace. Those of the model are for the fetch container only,
# which decides what they may be used for; Secrets of a runtime are admitted from users who may read Secrets.
_OF_FETCH: Final = {CREDENTIALS_VOLUME: "secret", CA_VOLUME: "configMap"}
_OF_RUNTIME: Final = frozenset({"emptyDir", "configMap", "secret"})
_VOLUMES: Final = frozenset({"emptyDir", "image"})
_ENV_SOURCES: Final = frozenset({"secretKeyRef", "configMapKeyRef"})
_PROBES: Final = ("startupProbe", "readinessProbe", "livenessProbe")
_POD_FIELDS: Final = frozenset(
    {
        *("initContainers", "containers", "volumes", "restartPolicy", "terminationGracePeriodSeconds"),
        *("serviceAccountName", "automountServiceAccountToken", "imagePullSecrets", "enableServiceLinks"),
        *("nodeSelector", "affinity", "tolerations", "topologySpreadConstraints"),
        *("runtimeClassName", "priorityClassName", "securityContext", "resourceClaims"),
    }
)
_CLAIM_FIELDS: Final = frozenset({"name", "resourceClaimTemplateName"})
_POD_SECURITY: Final = frozenset({"runAsNonRoot", "runAsUser", "runAsGroup", "fsGroup", "seccompProfile"})
_IDS: Final = ("runAsUser", "runAsGroup", "fsGroup")
_BOTH_KINDS: Final = frozenset(
    {
        *("name", "image", "imagePullPolicy", "command", "args", "env", "resources", "volumeMounts"),
        *("securityContext", "startupProbe", "livenessProbe"),
        *("terminationMessagePath", "terminationMessagePolicy"),
    }
)
# A port of an init container could take the name by which a Service finds the one of the server.
_CONTAINER_FIELDS: Final = {
    "initContainers": _BOTH_KINDS | {"restartPolicy"},
    "containers": _BOTH_KINDS | {"ports", "readinessProbe", "lifecycle"},
}
_CONTAINER_SECURITY: Final = frozenset(
    {"privileged", "allowPrivilegeEscalation", "readOnlyRootFilesystem", "capabilities"}
)
_MOUNT_FIELDS: Final = frozenset({"name", "mountPath", "readOnly"})
_POD_AFFINITY_FIELDS: Final = frozenset({"labelSelector", "topologyKey"})


def violations(
    template: Object, service_account: str | None, claims: frozenset[str] = frozenset()
) -> tuple[str, ...]:
    """What the pod template asks for and may not have, each with its field; empty if nothing.

    `claims`: names of the ResourceClaimTemplates of its revision.
    """
    pod = template["spec"]
    found = [*_metadata(template), *_pod_level(pod, service_account), *_claims(pod, claims)]
    for group in ("initContainers", "containers"):
        for index, container in enumerate(pod.get(group, ())):
            found.extend(_others(container, _CONTAINER_FIELDS[group], f"{group}[{index}]."))
            for rule in _CONTAINER_RULES:
                found.extend(rule(container, f"{group}[{index}]"))
    return tuple(found)


def _others(part: Object, known: frozenset[str], path: str) -> Iterator[str]:
    for field in sorted(part.keys() - known):
        yield f"{path}{field} is not allowed"


def _metadata(template: Object) -> Iterator[str]:
    view = KubernetesObject(template)
    for name in view.annotations:
        if name.startswith(PROFILE_ANNOTATIONS):
            yield f"metadata.annotations[{name}] is not allowed: the pod's profiles hold"
    for field, items in (("annotations", view.annotations), ("labels", view.labels)):
        for name, value in items.items():
            if is_acted_on(name, value):
                yield f"metadata.{field}[{name}] is not allowed: a plugin of the cluster acts on it"


def _pod_level(pod: Object, service_account: str | None) -> Iterator[str]:
    yield from _others(pod, _POD_FIELDS, "")
    if pod.get("serviceAccountName") != service_account:
        yield f"serviceAccountName {pod.get('serviceAccountName')!r} is not the service's own"
    if pod.get("automountServiceAccountToken") is not False:
        yield "automountServiceAccountToken must be false"
    for index, volume in enumerate(pod.get("volumes", ())):
        yield from _volume(volume, f"volumes[{index}]")
    security = pod.get("securityContext", {})
    if security.get("runAsNonRoot") is not True:
        yield "securityContext.runAsNonRoot must be true"
    if security.get("seccompProfile", {}).get("type") != "RuntimeDefault":
        yield "securityContext.seccompProfile.type must be RuntimeDefault"
    for field in _IDS:
        if security.get(field) == 0:
            yield f"securityContext.{field} must not be 0"
    yield from _others(security, _POD_SECURITY, "securityContext.")
    yield from _pod_affinity(pod.get("affinity", {}))


def _claims(pod: Object, known: frozenset[str]) -> Iterator[str]:
    """Another claim of the namespace could be anyone's."""
    for index, claim in enumerate(pod.get("resourceClaims", ())):
        path = f"resourceClaims[{index}]"
        yield from _others(claim, _CLAIM_FIELDS, f"{path}.")
        if claim.get("resourceClaimTemplateName") not in known:
            yield f"{path}.resourceClaimTemplateName is not the revision's own"


def _pod_affinity(affinity: Object) -> Iterator[str]:
    for kind in ("podAffinity", "podAntiAffinity"):
        for strength, terms in affinity.get(kind, {}).items():
            for index, term in enumerate(terms):
                of_pods = term.get("podAffinityTerm", term)
                for field in sorted(of_pods.keys() - _POD_AFFINITY_FIELDS):
                    path = f"affinity.{kind}.{strength}[{index}].{field}"
                    yield f"{path} is not allowed: pods are those of the namespace"


def _volume(volume: Object, path: str) -> Iterator[str]:
    for kind in sorted(volume.keys() - {"name"} - _allowed(volume.get("name", ""))):
        if kind == "persistentVolumeClaim":
            if volume.get("name") == CACHE_VOLUME:
                if not str(volume[kind].get("claimName")).startswith(CLAIM_PREFIX):
                    yield f"{path}.persistentVolumeClaim.claimName must be that of a cache of models"
            elif volume[kind].get("readOnly") is not True:
                yield f"{path}.persistentVolumeClaim.readOnly must be true"
        else:
            yield f"{path}.{kind} is not allowed: only emptyDir, image and persistentVolumeClaim are"


def _allowed(name: str) -> frozenset[str]:
    """The kinds of volumes that one of this name may be, besides a claim."""
    if name.startswith(RUNTIME_VOLUME):
        return _OF_RUNTIME
    if name.startswith(FILES_VOLUME):
        return frozenset({"downwardAPI"})
    return frozenset({*_VOLUMES, _OF_FETCH[name]}) if name in _OF_FETCH else _VOLUMES


def _mounts(container: Object, path: str) -> Iterator[str]:
    for index, mount in enumerate(container.get("volumeMounts", ())):
        yield from _others(mount, _MOUNT_FIELDS, f"{path}.volumeMounts[{index}].")


def _mounts_of_fetch(container: Object, path: str) -> Iterator[str]:
    if container.get("name") == FETCH_CONTAINER and path.startswith("initContainers"):
        return
    for index, mount in enumerate(container.get("volumeMounts", ())):
        if mount.get("name") in _OF_FETCH:
            yield f"{path}.volumeMounts[{index}] is not allowed: {mount['name']} is for the fetch container"


def _cache_is_read_only(container: Object, path: str) -> Iterator[str]:
    """What one pod has downloaded is what others serve: no other container may change it."""
    if container.get("name") == FETCH_CONTAINER and path.startswith("initContainers"):
        return
    for index, mount in enumerate(container.get("volumeMounts", ())):
        if mount.get("name") == CACHE_VOLUME and mount.get("readOnly") is not True:
            yield f"{path}.volumeMounts[{index}].readOnly must be true: only the fetch container writes it"


def _privileges(container: Object, path: str) -> Iterator[str]:
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


def _own_security(container: Object, path: str) -> Iterator[str]:
    security = container.get("securityContext", {})
    for field in sorted(security.keys() - _CONTAINER_SECURITY):
        yield f"{path}.securityContext.{field} is not allowed: the pod's holds"


def _host_ports(container: Object, path: str) -> Iterator[str]:
    for index, port in enumerate(container.get("ports", ())):
        if port.get("hostPort") or port.get("hostIP"):
            yield f"{path}.ports[{index}]: hostPort and hostIP are not allowed"


def _probe_hosts(container: Object, path: str) -> Iterator[str]:
    handlers = [(name, container.get(name) or {}) for name in _PROBES]
    handlers += [(f"lifecycle.{name}", hook) for name, hook in (container.get("lifecycle") or {}).items()]
    for name, handler in handlers:
        for action in ("httpGet", "tcpSocket"):
            if (handler.get(action) or {}).get("host"):
                yield f"{path}.{name}.{action}.host is not allowed: probes go to the pod itself"


def _hooks(container: Object, path: str) -> Iterator[str]:
    yield from _others(container.get("lifecycle") or {}, frozenset({"preStop"}), f"{path}.lifecycle.")


def _variables(container: Object, path: str) -> Iterator[str]:
    for index, variable in enumerate(container.get("env", ())):
        if variable.get("name") in DEVICE_VARIABLES:
            yield f"{path}.env[{index}].name {variable['name']!r} is not allowed: the device plugin sets it"
        source = variable.get("valueFrom", {"secretKeyRef": {}})
        if not source or source.keys() - _ENV_SOURCES:
            yield f"{path}.env[{index}].valueFrom is not allowed: only secretKeyRef and configMapKeyRef are"


_CONTAINER_RULES: Final[tuple[Callable[[Object, str], Iterator[str]], ...]] = (
    _privileges,
    _own_security,
    _host_ports,
    _probe_hosts,
    _hooks,
    _variables,
    _mounts,
    _mounts_of_fetch,
    _cache_is_read_only,
)
