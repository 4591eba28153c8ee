"""The pod template of a revision: what the runtime says, and all around it that Tailbound answers for."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from tailbound.api.batching import Batching
from tailbound.api.hardwareclass import HardwareClass
from tailbound.api.inferenceservice import InferenceService
from tailbound.api.names import MANAGED_BY_LABEL, MANAGED_BY_VALUE, REVISION_LABEL, SERVICE_LABEL
from tailbound.api.quantities import Duration
from tailbound.api.runtime_contract import (
    FETCH_CONTAINER,
    MODELS_MOUNT,
    MODELS_VOLUME,
    SCRATCH_MOUNT,
    SCRATCH_VOLUME,
    SERVER_CONTAINER,
    Env,
    model_path,
)
from tailbound.api.servingruntime import ServerContainer
from tailbound.revisions.relevant import pod_timeout

# A user id that exists in no image: nothing in a root filesystem is writable for it anyway, and images whose
# own user is root run as well.
_USER_ID: Final = 65532
# After drain and the longest request: for the process to end.
_EXIT_MARGIN_SECONDS: Final = 5
_ZONE: Final = "topology.kubernetes.io/zone"


@dataclass(frozen=True)
class Fetcher:
    """The init container that downloads the model, as the installation fixes it."""

    image: str
    image_pull_policy: str
    image_pull_secrets: tuple[str, ...]
    allowed_hosts: tuple[str, ...]
    denied_cidrs: tuple[str, ...]


@dataclass(frozen=True)
class Ingredients:
    """What a pod template is made from. `server` has its expressions expanded."""

    revision: str
    service: InferenceService
    server: ServerContainer
    drain: Duration
    hardware_class: HardwareClass
    fetcher: Fetcher


def context(service: InferenceService, hardware_class: HardwareClass, revision: str) -> dict[str, Any]:
    """The variables that a runtime's leaf strings may use."""
    spec = service.spec
    return {
        "service": {"name": service.metadata.name, "namespace": service.metadata.namespace},
        "model": {
            "path": model_path(spec.model.format),
            "format": spec.model.format,
            "uri": spec.model.uri,
        },
        "revision": {"name": revision},
        "hardware": {
            "class": hardware_class.metadata.name,
            "devices": sum(device.count for device in hardware_class.spec.resources),
        },
        "resources": {"cpu": str(spec.resources.cpu), "memory": str(spec.resources.memory)},
        "timeout": {"seconds": _plain(pod_timeout(spec).seconds)},
        "batching": {
            "mode": str(spec.batching.mode),
            "maxBatchSize": spec.batching.effective_max_batch_size(),
            "preferredBatchSizes": _sizes(spec.batching),
            "maxQueueDelaySeconds": _delay_seconds(spec.batching),
        },
    }


def pod_template(made_of: Ingredients) -> dict[str, Any]:
    """The pod template: metadata and spec. What the server would default and we rely on is written out."""
    service = made_of.service
    template: dict[str, Any] = {
        "metadata": {
            "labels": {
                **service.spec.labels,
                MANAGED_BY_LABEL: MANAGED_BY_VALUE,
                SERVICE_LABEL: service.metadata.name,
                REVISION_LABEL: made_of.revision,
            }
        },
        "spec": _pod_spec(made_of),
    }
    if service.spec.annotations:
        template["metadata"]["annotations"] = dict(service.spec.annotations)
    return template


def _pod_spec(made_of: Ingredients) -> dict[str, Any]:
    spec = made_of.service.spec
    pod: dict[str, Any] = {
        "automountServiceAccountToken": False,  # nothing in the pod talks to the API server
        "enableServiceLinks": False,  # a namespace with many Services would flood the environment
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": _grace_seconds(made_of),
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER_ID,
            "runAsGroup": _USER_ID,
            "fsGroup": _USER_ID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "initContainers": [_fetch_container(made_of)],
        "containers": [_server_container(made_of)],
        "volumes": [{"name": MODELS_VOLUME, "emptyDir": {}}, {"name": SCRATCH_VOLUME, "emptyDir": {}}],
        # In every template, though one replica has nothing to spread: a change of the replica count makes
        # no revision.
        "topologySpreadConstraints": [_spread(_ZONE, made_of), _spread("kubernetes.io/hostname", made_of)],
    }
    if spec.service_account_name is not None:
        pod["serviceAccountName"] = spec.service_account_name
    secrets = _unique((*(s.name for s in spec.image_pull_secrets), *made_of.fetcher.image_pull_secrets))
    if secrets:
        pod["imagePullSecrets"] = [{"name": name} for name in secrets]
    return pod | _placement(made_of.hardware_class)


def _placement(hardware_class: HardwareClass) -> dict[str, Any]:
    spec = hardware_class.spec
    placement: dict[str, Any] = {}
    if spec.node_selector:
        placement["nodeSelector"] = dict(spec.node_selector)
    if spec.tolerations:
        placement["tolerations"] = [
            {
                key: value
                for key, value in toleration.model_dump(mode="json", by_alias=True, exclude_none=True).items()
                if value != ""
            }
            for toleration in spec.tolerations
        ]
    if spec.runtime_class_name is not None:
        placement["runtimeClassName"] = spec.runtime_class_name
    if spec.priority_class_name is not None:
        placement["priorityClassName"] = spec.priority_class_name
    return placement


def _spread(topology_key: str, made_of: Ingredients) -> dict[str, Any]:
    return {
        "maxSkew": 1,
        "topologyKey": topology_key,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {REVISION_LABEL: made_of.revision}},
    }


def _grace_seconds(made_of: Ingredients) -> int:
    """Whole seconds, rounded up: the drain, then the longest request that began in it, then the exit."""
    milliseconds = made_of.drain.milliseconds + pod_timeout(made_of.service.spec).milliseconds
    return -(-milliseconds // 1000) + _EXIT_MARGIN_SECONDS


def _fetch_container(made_of: Ingredients) -> dict[str, Any]:
    model, fetcher = made_of.service.spec.model, made_of.fetcher
    arguments = ["fetch", "--uri", model.uri, "--sha256", model.sha256, "--output", model_path(model.format)]
    return {
        "name": FETCH_CONTAINER,
        "image": fetcher.image,
        "imagePullPolicy": fetcher.image_pull_policy,
        "command": ["tailbound"],
        # The kubelet expands $(NAME) in arguments; $$ is a plain $.
        "args": [argument.replace("$(", "$$(") for argument in arguments],
        "env": _environment(
            {
                "TAILBOUND_FETCH_ALLOWED_HOSTS": ",".join(fetcher.allowed_hosts),
                "TAILBOUND_FETCH_DENIED_CIDRS": ",".join(fetcher.denied_cidrs),
            }
        ),
        # The same as the server's: a pod asks for the larger of the two, so that this costs nothing.
        "resources": _resources(made_of, devices=False),
        "securityContext": _container_security(),
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": MODELS_VOLUME, "mountPath": MODELS_MOUNT},
            {"name": SCRATCH_VOLUME, "mountPath": SCRATCH_MOUNT},
        ],
    }


def _server_container(made_of: Ingredients) -> dict[str, Any]:
    server = made_of.server.model_dump(mode="json", by_alias=True, exclude_none=True)
    container: dict[str, Any] = {key: value for key, value in server.items() if value not in ([], {})}
    container |= {
        "name": SERVER_CONTAINER,
        "ports": [{**port, "protocol": "TCP"} for port in server["ports"]],
        "env": _server_environment(made_of),
        "resources": _resources(made_of, devices=True),
        "securityContext": _container_security(),
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": MODELS_VOLUME, "mountPath": MODELS_MOUNT, "readOnly": True},
            {"name": SCRATCH_VOLUME, "mountPath": SCRATCH_MOUNT},
        ],
    }
    return container


def _server_environment(made_of: Ingredients) -> list[dict[str, str]]:
    """The contract's variables, then the runtime's, then the user's: of one name the last counts.

    Names of the contract's kind are reserved in both kinds of object, so that neither overrides the contract.
    """
    service, spec = made_of.service, made_of.service.spec
    variables: dict[str, str] = {
        Env.MODEL_NAME: service.metadata.name,
        Env.MODEL_PATH: model_path(spec.model.format),
        Env.MODEL_FORMAT: spec.model.format,
        Env.REVISION: made_of.revision,
        Env.REQUEST_TIMEOUT_SECONDS: _plain(pod_timeout(spec).seconds),
        Env.DRAIN_SECONDS: _plain(made_of.drain.seconds),
        Env.CPU_LIMIT: str(max(1, spec.resources.cpu.ceil())),
        Env.BATCHING_MODE: str(spec.batching.mode),
        Env.BATCHING_MAX_SIZE: str(spec.batching.effective_max_batch_size()),
        Env.BATCHING_PREFERRED_SIZES: _sizes(spec.batching),
        Env.BATCHING_MAX_DELAY_SECONDS: _delay_seconds(spec.batching),
        "ORT_DISABLE_TELEMETRY": "1",  # onnxruntime's wheels send usage data unless switched off
    }
    for variable in (*made_of.server.env, *spec.env):
        variables.pop(variable.name, None)
        variables[variable.name] = variable.value
    return _environment(variables)


def _sizes(batching: Batching) -> str:
    return ",".join(map(str, batching.preferred_batch_sizes))


def _delay_seconds(batching: Batching) -> str:
    return _plain(batching.max_queue_delay.seconds) if batching.max_queue_delay is not None else "0"


def _environment(variables: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": str(name), "value": value} for name, value in variables.items()]


def _resources(made_of: Ingredients, *, devices: bool) -> dict[str, Any]:
    wanted = made_of.service.spec.resources
    amounts = {"cpu": str(wanted.cpu), "memory": str(wanted.memory)}
    if devices:
        amounts |= {device.name: str(device.count) for device in made_of.hardware_class.spec.resources}
    return {"requests": dict(amounts), "limits": amounts}


def _container_security() -> dict[str, Any]:
    return {
        "privileged": False,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def _plain(seconds: Decimal) -> str:
    """Decimal seconds without exponent or needless zeros."""
    text = f"{seconds:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
