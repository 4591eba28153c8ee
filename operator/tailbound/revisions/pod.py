"""The pod template of a revision: what the runtime says, and all around it that Tailbound answers for."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

from tailbound.api.batching import Batching
from tailbound.api.device_memory import PodMemory
from tailbound.api.hardwareclass import HardwareClass
from tailbound.api.inference_paths import DEFAULT_INFERENCE_PATHS, written
from tailbound.api.inferenceservice import InferenceService
from tailbound.api.init_container import InitContainer
from tailbound.api.meta import EnvVar
from tailbound.api.names import (
    HARDWARE_CLASS_ANNOTATION,
    INFERENCE_PATHS_ANNOTATION,
    MANAGED_BY_LABEL,
    MANAGED_BY_VALUE,
    METADATA_PATH_ANNOTATION,
    REVISION_LABEL,
    SERVER_METRICS_ANNOTATION,
    SERVICE_LABEL,
)
from tailbound.api.pod_parts import ConfigFile, PodSecurity, Volume
from tailbound.api.quantities import Duration
from tailbound.api.runtime_contract import (
    FETCH_CONTAINER,
    SCRATCH_MOUNT,
    SERVER_CONTAINER,
    Env,
    FetchEnv,
    model_path,
)
from tailbound.api.server_metrics import ServerMetrics, metrics_text
from tailbound.api.servingruntime import Drain, DrainMode, ServerContainer
from tailbound.objects.fields import child, children
from tailbound.revisions.claims import CLAIM, claim_template
from tailbound.revisions.containers import (
    container_security,
    environment,
    own_container,
    pod_security,
    pull_secrets,
)
from tailbound.revisions.hold import hold_container, hold_port, pre_stop
from tailbound.revisions.model_cache import claim_name, claim_volume
from tailbound.revisions.model_mounts import (
    Fetcher,
    fetch_arguments,
    fetch_environment,
    fetch_mounts,
    server_mounts,
    storage_limit,
    storage_request,
    volumes,
)
from tailbound.revisions.placement import placement, spread
from tailbound.revisions.relevant import pod_timeout
from tailbound.revisions.resolved import ResolvedModel
from tailbound.revisions.volumes import file_annotations, runtime_mounts, runtime_volumes

# After drain and the longest request: for the process to end.
_EXIT_MARGIN_SECONDS: Final = 5
USER_ID: Final = 65532
"""A user id that exists in no image: nothing in a root filesystem is writable for it anyway, and images whose
own user is root run as well."""


@dataclass(frozen=True)
class Ingredients:
    """What a pod template is made from. `server` has its expressions expanded."""

    revision: str
    service: InferenceService
    server: ServerContainer
    drain: Drain
    hardware_class: HardwareClass
    fetcher: Fetcher
    files: tuple[ConfigFile, ...] = ()
    volumes: tuple[Volume, ...] = ()
    init_containers: tuple[InitContainer, ...] = ()
    """Their expressions are expanded."""
    security: PodSecurity = field(default_factory=PodSecurity)
    user_id: int | None = USER_ID
    """User and group of all containers, if `security` names none; None: the platform assigns them."""
    tells_class: bool = False
    """The pods carry the name of their class, as the revision has several."""
    inference_paths: tuple[str, ...] = DEFAULT_INFERENCE_PATHS
    metadata_path: str | None = None
    """Where the server states the inputs and outputs of its model, if it is no path that a protocol fixes."""
    metrics: ServerMetrics | None = None
    """Which metrics of the server tell how much it can do."""
    resolved: ResolvedModel | None = None
    """What the source had, where the spec has no digest."""
    claim: str | None = None
    """The PersistentVolumeClaim that has the model, where it is not the one of the model's own name."""


def context(service: InferenceService, hardware_class: HardwareClass, revision: str) -> dict[str, Any]:
    """The variables that a runtime's leaf strings may use."""
    spec = service.spec
    return {
        "service": {"name": service.metadata.name, "namespace": service.metadata.namespace},
        "model": {
            "path": model_path(spec.model.format, spec.model.path),
            "folder": model_path(spec.model.format, spec.model.path).rpartition("/")[0],
            "format": spec.model.format,
            "uri": spec.model.uri,
        },
        "revision": {"name": revision},
        "hardware": {
            "class": hardware_class.metadata.name,
            "devices": hardware_class.spec.devices,
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
    annotations = {**service.spec.annotations, **file_annotations(made_of.files)}
    if made_of.inference_paths != DEFAULT_INFERENCE_PATHS:
        annotations[INFERENCE_PATHS_ANNOTATION] = written(made_of.inference_paths)
    if made_of.metadata_path is not None:
        annotations[METADATA_PATH_ANNOTATION] = made_of.metadata_path
    if made_of.metrics is not None:
        annotations[SERVER_METRICS_ANNOTATION] = metrics_text(made_of.metrics)
    if made_of.tells_class:
        annotations[HARDWARE_CLASS_ANNOTATION] = made_of.hardware_class.metadata.name
    if annotations:
        template["metadata"]["annotations"] = annotations
    return template


def _pod_spec(made_of: Ingredients) -> dict[str, Any]:
    spec = made_of.service.spec
    pod: dict[str, Any] = {
        "automountServiceAccountToken": False,  # nothing in the pod talks to the API server
        "enableServiceLinks": False,  # a namespace with many Services would flood the environment
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": _grace_seconds(made_of),
        "securityContext": pod_security(made_of.user_id, made_of.security),
        "initContainers": _init_containers(made_of),
        "containers": [_server_container(made_of)],
        "volumes": [
            *volumes(spec.model, spec.resources),
            *_cache_volume(made_of),
            *runtime_volumes(made_of.volumes, made_of.files),
        ],
        "topologySpreadConstraints": spread(spec, made_of.revision),
    }
    if spec.service_account_name is not None:
        pod["serviceAccountName"] = spec.service_account_name
    secrets = pull_secrets(spec.image_pull_secrets, made_of.fetcher)
    if secrets:
        pod["imagePullSecrets"] = secrets
    claim = claim_template(made_of.revision, made_of.hardware_class)
    if claim is not None:
        pod["resourceClaims"] = [{"name": CLAIM, "resourceClaimTemplateName": claim.name}]
    return pod | placement(spec, made_of.hardware_class)


def _cache_volume(made_of: Ingredients) -> list[dict[str, Any]]:
    model, resolved = made_of.service.spec.model, made_of.resolved
    if model.cache is None:
        return []
    return [claim_volume(made_of.claim or claim_name(model, resolved))]


def _grace_seconds(made_of: Ingredients) -> int:
    """Whole seconds, rounded up: the hook, the drain, the longest request that began in it, the exit."""
    hook = made_of.drain.time.milliseconds if made_of.server.pre_stop is not None else 0
    return -(-(hook + _longest_drain(made_of).milliseconds) // 1000) + _EXIT_MARGIN_SECONDS


def _longest_drain(made_of: Ingredients) -> Duration:
    return Duration(made_of.drain.time.milliseconds + pod_timeout(made_of.service.spec).milliseconds)


def _hold_port(made_of: Ingredients) -> int:
    return hold_port(made_of.server, made_of.init_containers)


def _init_containers(made_of: Ingredients) -> list[dict[str, Any]]:
    containers = [_fetch_container(made_of), *(_init_container(made_of, e) for e in made_of.init_containers)]
    if made_of.drain.mode is DrainMode.HOLD:
        times = (made_of.drain.time, _longest_drain(made_of))
        common = own_container(made_of.fetcher)
        containers.append(hold_container(made_of.server, _hold_port(made_of), *times, common))
    return containers


def _fetch_container(made_of: Ingredients) -> dict[str, Any]:
    spec, fetcher = made_of.service.spec, made_of.fetcher
    return {
        **own_container(fetcher),
        "name": FETCH_CONTAINER,
        "args": fetch_arguments(spec.model, made_of.resolved),
        "env": environment(
            {**fetch_environment(fetcher, spec.resources, spec.model), **_device_memory(made_of)}
        ),
        # The same as the server's: a pod asks for the larger of the two, so that this costs nothing.
        "resources": _resources(made_of, devices=False),
        "volumeMounts": fetch_mounts(spec.model),
    }


def _device_memory(made_of: Ingredients) -> dict[str, str]:
    """What the fetch container compares the weights with, unless their size is declared."""
    hardware, size = made_of.hardware_class, made_of.service.spec.model.size
    each, devices = hardware.spec.device_memory, hardware.spec.devices
    if each is None or not devices or (size is not None and size.declares_weights):
        return {}
    activations = size.activations if size is not None else None
    memory = PodMemory(hardware.metadata.name, devices, each, activations)
    return {FetchEnv.DEVICE_MEMORY: memory.written()}


def without_device_memory(template: Mapping[str, Any]) -> dict[str, Any]:
    """A pod template without what its fetch container compares the weights with."""
    spec = child(template, "spec")
    containers = [
        {**each, "env": [var for var in children(each, "env") if var.get("name") != FetchEnv.DEVICE_MEMORY]}
        for each in children(spec, "initContainers")
    ]
    return {**template, "spec": {**spec, "initContainers": containers}}


def _runtime_container(made_of: Ingredients, of: ServerContainer | InitContainer) -> dict[str, Any]:
    """What the server and the init containers of a runtime have in common."""
    written_by_author = of.model_dump(mode="json", by_alias=True, exclude_none=True)
    container = {key: value for key, value in written_by_author.items() if value not in ([], {})}
    return container | {
        "securityContext": container_security(),
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            *server_mounts(made_of.service.spec.model),
            *runtime_mounts(of.volume_mounts, made_of.volumes, made_of.files),
        ],
    }


def _init_container(made_of: Ingredients, of: InitContainer) -> dict[str, Any]:
    amounts = of.resources
    wanted = {
        "cpu": str(amounts.cpu),
        "memory": str(amounts.memory),
        "ephemeral-storage": str(amounts.ephemeral_storage),
    }
    return {
        **_runtime_container(made_of, of),
        "env": _variables(_of_every_container(made_of), of.env),
        "resources": {"requests": wanted, "limits": dict(wanted)},
    }


def _server_container(made_of: Ingredients) -> dict[str, Any]:
    container = _runtime_container(made_of, made_of.server)
    hook = container.pop("preStop", None)
    if made_of.drain.mode is DrainMode.HOLD:
        container["lifecycle"] = pre_stop(_hold_port(made_of))
    elif hook is not None:
        container["lifecycle"] = {"preStop": hook}
    return {
        **container,
        "name": SERVER_CONTAINER,
        "ports": [{**port, "protocol": "TCP"} for port in container["ports"]],
        "env": _server_environment(made_of),
        "resources": _resources(made_of, devices=True),
    }


def _of_every_container(made_of: Ingredients) -> dict[str, str]:
    """The contract's variables that init containers of a runtime have as well."""
    service = made_of.service
    return {
        "HOME": SCRATCH_MOUNT,  # many programs write caches there, and nothing else is writable
        Env.MODEL_NAME: service.metadata.name,
        Env.MODEL_PATH: model_path(service.spec.model.format, service.spec.model.path),
        Env.MODEL_FORMAT: service.spec.model.format,
        Env.REVISION: made_of.revision,
    }


def _server_environment(made_of: Ingredients) -> list[dict[str, Any]]:
    """The contract's variables, then the runtime's, then the user's: of one name the last counts.

    Names of the contract's kind are reserved in both kinds of object, so that neither overrides the contract.
    """
    spec = made_of.service.spec
    variables: dict[str, str] = {
        **_of_every_container(made_of),
        Env.REQUEST_TIMEOUT_SECONDS: _plain(pod_timeout(spec).seconds),
        Env.DRAIN_SECONDS: _plain(_serves_after_sigterm(made_of.drain).seconds),
        Env.CPU_LIMIT: str(max(1, spec.resources.cpu.ceil())),
        Env.BATCHING_MODE: str(spec.batching.mode),
        Env.BATCHING_MAX_SIZE: str(spec.batching.effective_max_batch_size()),
        Env.BATCHING_PREFERRED_SIZES: _sizes(spec.batching),
        Env.BATCHING_MAX_DELAY_SECONDS: _delay_seconds(spec.batching),
        "ORT_DISABLE_TELEMETRY": "1",  # onnxruntime's wheels send usage data unless switched off
    }
    return _variables(variables, (*made_of.server.env, *spec.env))


def _variables(ours: Mapping[str, str], others: Iterable[EnvVar]) -> list[dict[str, Any]]:
    """Environment variables: of one name the last counts."""
    made = {each["name"]: each for each in environment(ours)}
    for variable in others:
        made.pop(variable.name, None)
        made[variable.name] = variable.in_pod()
    return list(made.values())


def _serves_after_sigterm(drain: Drain) -> Duration:
    """Time for which the server must serve on after SIGTERM; nothing is in flight after a hold."""
    return drain.time if drain.mode is DrainMode.SERVER else Duration(0)


def _sizes(batching: Batching) -> str:
    return ",".join(map(str, batching.preferred_batch_sizes))


def _delay_seconds(batching: Batching) -> str:
    return _plain(batching.max_queue_delay.seconds) if batching.max_queue_delay is not None else "0"


def _resources(made_of: Ingredients, *, devices: bool) -> dict[str, Any]:
    wanted = made_of.service.spec.resources
    amounts = {"cpu": str(wanted.cpu), "memory": str(wanted.memory)}
    if devices:
        amounts |= {device.name: str(device.count) for device in made_of.hardware_class.spec.resources}
    claimed = devices and made_of.hardware_class.spec.resource_claim is not None
    return {
        "requests": {**amounts, "ephemeral-storage": str(storage_request(wanted))},
        "limits": {**amounts, "ephemeral-storage": str(storage_limit(wanted))},
        **({"claims": [{"name": CLAIM}]} if claimed else {}),
    }


def _plain(seconds: Decimal) -> str:
    """Decimal seconds without exponent or needless zeros."""
    text = f"{seconds:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
