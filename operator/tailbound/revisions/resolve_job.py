"""The Job that finds the digest of a source that has none in the spec: the fetch container, and no server.

It runs like a serving pod's fetch container: restricted, with the credentials of the service and its disk
limit. Where it can, it downloads to a claim, which becomes that of the revision (`model_cache`). A container
that fails is started again by the kubelet, which waits longer each time.
"""

from collections.abc import Mapping
from typing import Any, Final

from tailbound.api.inferenceservice import InferenceService
from tailbound.api.model_source import ModelSource
from tailbound.api.names import MANAGED_BY_LABEL, MANAGED_BY_VALUE, SERVICE_LABEL
from tailbound.api.runtime_contract import FETCH_CONTAINER
from tailbound.revisions.containers import environment, own_container, pod_security, pull_secrets
from tailbound.revisions.model_cache import claim_volume, filled_by_job
from tailbound.revisions.model_mounts import (
    Fetcher,
    fetch_environment,
    fetch_mounts,
    resolve_arguments,
    storage_limit,
    storage_request,
    volumes,
)

_ATTEMPTS: Final = 30
"""Restarts of the container, and pods after lost ones, for which a Job lasts."""
_START_SECONDS: Final = 600
"""For a node, and for the image."""
_CPU: Final = {"request": "100m", "limit": "1"}
_MEMORY: Final = "512Mi"


def resolve_job(
    name: str,
    service: InferenceService,
    fetcher: Fetcher,
    user_id: int | None,
    owner: Mapping[str, Any],
    claim: str,
) -> dict[str, Any]:
    """The Job of this name, which is also that of the revision to make.

    claim: the name of the claim to which it downloads, if it does to any.
    """
    labels = {MANAGED_BY_LABEL: MANAGED_BY_VALUE, SERVICE_LABEL: service.metadata.name}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": service.metadata.namespace,
            "labels": labels,
            "ownerReferences": [dict(owner)],
        },
        "spec": {
            "backoffLimit": _ATTEMPTS,
            "activeDeadlineSeconds": fetcher.timeout_seconds + _START_SECONDS,
            "template": {"metadata": {"labels": labels}, "spec": _pod(service, fetcher, user_id, claim)},
        },
    }


def _pod(service: InferenceService, fetcher: Fetcher, user_id: int | None, claim: str) -> dict[str, Any]:
    spec = service.spec
    kept = [claim_volume(claim)] if filled_by_job(spec.model) else []
    pod: dict[str, Any] = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": "OnFailure",
        "terminationGracePeriodSeconds": 5,
        "securityContext": pod_security(user_id),
        "containers": [_container(service, fetcher)],
        "volumes": [*volumes(spec.model, spec.resources), *kept],
    }
    if spec.service_account_name is not None:
        pod["serviceAccountName"] = spec.service_account_name
    secrets = pull_secrets(spec.image_pull_secrets, fetcher)
    return pod | ({"imagePullSecrets": secrets} if secrets else {})


def _container(service: InferenceService, fetcher: Fetcher) -> dict[str, Any]:
    spec = service.spec
    model = spec.model if filled_by_job(spec.model) else _uncached(spec.model)
    return {
        **own_container(fetcher),
        "name": FETCH_CONTAINER,
        "args": resolve_arguments(model),
        "env": environment(fetch_environment(fetcher, spec.resources, model)),
        "resources": {
            "requests": {
                "cpu": _CPU["request"],
                "memory": _MEMORY,
                "ephemeral-storage": str(storage_request(spec.resources)),
            },
            "limits": {
                "cpu": _CPU["limit"],
                "memory": _MEMORY,
                "ephemeral-storage": str(storage_limit(spec.resources)),
            },
        },
        "volumeMounts": fetch_mounts(model),
    }


def _uncached(model: ModelSource) -> ModelSource:
    return model.model_copy(update={"cache": None})
