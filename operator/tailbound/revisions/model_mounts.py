"""What a pod needs to get its model: the fetch container's arguments, environment and volumes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tailbound.api.inferenceservice import Resources
from tailbound.api.model_source import ModelCache, ModelSource
from tailbound.api.quantities import Quantity
from tailbound.api.runtime_contract import (
    CA_KEY,
    CA_MOUNT,
    CA_VOLUME,
    CACHE_MOUNT,
    CACHE_VOLUME,
    CREDENTIALS_MOUNT,
    CREDENTIALS_VOLUME,
    MODELS_MOUNT,
    MODELS_VOLUME,
    SCRATCH_MOUNT,
    SCRATCH_VOLUME,
    SOURCE_MOUNT,
    SOURCE_VOLUME,
    FetchEnv,
    model_path,
)
from tailbound.revisions.resolved import ResolvedModel

DEFAULT_STORAGE_LIMIT: Final = Quantity.parse("10Gi")
DEFAULT_STORAGE_REQUEST: Final = Quantity.parse("64Mi")
# Of the storage limit: for logs and what the server writes. The kubelet evicts a pod that is above its limit.
_NOT_FOR_MODELS_BYTES: Final = 32 * 1024 * 1024


@dataclass(frozen=True)
class Fetcher:
    """Settings of the containers that fetch, which the installation fixes."""

    image: str
    image_pull_policy: str
    image_pull_secrets: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    denied_cidrs: tuple[str, ...] = ()
    allowed_cidrs: tuple[str, ...] = ()
    timeout_seconds: int = 3600
    proxy: str | None = None
    ca_certificates: str | None = None


def fetch_arguments(model: ModelSource, resolved: ResolvedModel | None) -> list[str]:
    """The arguments of the fetch container of a serving pod.

    resolved: what the source had when the revision was made, where the spec has no digest.
    """
    pin = [] if model.sha256 is None else ["--sha256", model.sha256]
    if resolved is not None:
        pin = ["--sha256", resolved.sha256, "--resolved"]
    return _arguments(model, ["--report", *pin])


def resolve_arguments(model: ModelSource) -> list[str]:
    """The arguments of the container that finds the digest of the source."""
    return _arguments(model, ["--report", "--resolve"])


def _arguments(model: ModelSource, pin: list[str]) -> list[str]:
    arguments = ["fetch", "--uri", model.uri, *pin]
    arguments += ["--output", model_path(model.format, model.path)]
    if model.path is not None:
        arguments += _option("--path", model.path)
    if model.archive is not None:
        arguments += ["--archive", model.archive]
    if model.cache is not None:
        arguments += ["--cache", CACHE_MOUNT]
    for pattern in model.files:
        arguments += _option("--files", pattern)
    if model.secret_ref is not None:
        arguments += ["--credentials", CREDENTIALS_MOUNT]
    if model.ca_ref is not None:
        arguments += ["--ca", f"{CA_MOUNT}/{CA_KEY}"]
    if model.proxy is not None:
        arguments += ["--proxy", model.proxy]
    if model.s3 is not None:
        arguments += _option("--s3-region", model.s3.region)
        if model.s3.endpoint is not None:
            arguments += ["--s3-endpoint", model.s3.endpoint]
        if not model.s3.path_style:
            arguments.append("--s3-virtual-hosts")
    # The kubelet expands $(NAME) in arguments, of any variable of the container; $$ is a plain $.
    return [argument.replace("$", "$$") for argument in arguments]


def _option(name: str, value: str) -> list[str]:
    """An option with a value that could be taken for another option."""
    return [f"{name}={value}"] if value.startswith("-") else [name, value]


def fetch_environment(fetcher: Fetcher, resources: Resources, model: ModelSource) -> Mapping[str, str]:
    """The environment of the fetch container."""
    own_disk = storage_limit(resources).ceil() - _NOT_FOR_MODELS_BYTES
    limit_bytes = own_disk if model.cache is None else model.cache.size.ceil()
    variables: dict[str, str] = {
        FetchEnv.ALLOWED_HOSTS: ",".join(fetcher.allowed_hosts),
        FetchEnv.DENIED_CIDRS: ",".join(fetcher.denied_cidrs),
        FetchEnv.ALLOWED_CIDRS: ",".join(fetcher.allowed_cidrs),
        FetchEnv.TIMEOUT_SECONDS: str(fetcher.timeout_seconds),
        FetchEnv.LIMIT_BYTES: str(limit_bytes),
    }
    if fetcher.proxy is not None:
        variables[FetchEnv.PROXY] = fetcher.proxy
    if fetcher.ca_certificates is not None:
        variables[FetchEnv.CA_CERTIFICATES] = fetcher.ca_certificates
    return variables


def storage_limit(resources: Resources) -> Quantity:
    """The disk that a pod may use."""
    return resources.ephemeral_storage or DEFAULT_STORAGE_LIMIT


def storage_request(resources: Resources) -> Quantity:
    """The disk that is set aside for a pod on its node."""
    return resources.ephemeral_storage or DEFAULT_STORAGE_REQUEST


def volumes(model: ModelSource, resources: Resources) -> list[dict[str, Any]]:
    """The volumes of the pod."""
    limit = {"sizeLimit": str(storage_limit(resources))}
    found: list[dict[str, Any]] = [
        {"name": MODELS_VOLUME, "emptyDir": dict(limit)},
        {"name": SCRATCH_VOLUME, "emptyDir": dict(limit)},
    ]
    if model.mounted:
        found.append({"name": SOURCE_VOLUME, **_source(model.uri)})
    # Optional: a pod with a missing one would wait without a word. The fetch container says what is missing.
    if model.secret_ref is not None:
        secret = {"secretName": model.secret_ref.name, "optional": True, "defaultMode": 0o440}
        found.append({"name": CREDENTIALS_VOLUME, "secret": secret})
    if model.ca_ref is not None:
        config = {"name": model.ca_ref.name, "optional": True, "defaultMode": 0o444}
        found.append({"name": CA_VOLUME, "configMap": config})
    return found


def server_mounts(model: ModelSource) -> list[dict[str, Any]]:
    """The mounts of the server's container: no credentials."""
    return [
        {"name": MODELS_VOLUME, "mountPath": MODELS_MOUNT, "readOnly": True},
        *_source_mount(model),
        *({"name": CACHE_VOLUME, "mountPath": CACHE_MOUNT, "readOnly": True} for _ in _cache(model)),
        {"name": SCRATCH_VOLUME, "mountPath": SCRATCH_MOUNT},
    ]


def fetch_mounts(model: ModelSource) -> list[dict[str, Any]]:
    """The mounts of the fetch container."""
    mounts: list[dict[str, Any]] = [
        {"name": MODELS_VOLUME, "mountPath": MODELS_MOUNT},
        *_source_mount(model),
        *({"name": CACHE_VOLUME, "mountPath": CACHE_MOUNT} for _ in _cache(model)),
        {"name": SCRATCH_VOLUME, "mountPath": SCRATCH_MOUNT},
    ]
    if model.secret_ref is not None:
        mounts.append({"name": CREDENTIALS_VOLUME, "mountPath": CREDENTIALS_MOUNT, "readOnly": True})
    if model.ca_ref is not None:
        mounts.append({"name": CA_VOLUME, "mountPath": CA_MOUNT, "readOnly": True})
    return mounts


def _cache(model: ModelSource) -> Iterator[ModelCache]:
    if model.cache is not None:
        yield model.cache


def _source_mount(model: ModelSource) -> list[dict[str, Any]]:
    if not model.mounted:
        return []
    return [{"name": SOURCE_VOLUME, "mountPath": SOURCE_MOUNT, "readOnly": True}]


def _source(uri: str) -> dict[str, Any]:
    if uri.startswith("oci://"):
        return {"image": {"reference": uri.removeprefix("oci://"), "pullPolicy": "IfNotPresent"}}
    claim = uri.removeprefix("pvc://").partition("/")[0]
    return {"persistentVolumeClaim": {"claimName": claim, "readOnly": True}}
