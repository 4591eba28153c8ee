"""What all pods have in common that Tailbound makes: its own containers, and the restricted profile."""

from collections.abc import Mapping, Sequence
from typing import Any

from tailbound.api.model_source import SecretReference
from tailbound.api.pod_parts import PodSecurity
from tailbound.revisions.model_mounts import Fetcher


def own_container(fetcher: Fetcher) -> dict[str, Any]:
    """The fields of every container of Tailbound's own image."""
    return {
        "image": fetcher.image,
        "imagePullPolicy": fetcher.image_pull_policy,
        "command": ["tailbound"],
        "securityContext": container_security(),
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def environment(variables: Mapping[str, str]) -> list[dict[str, Any]]:
    """The variables as a container lists them."""
    return [{"name": str(name), "value": value} for name, value in variables.items()]


def pod_security(user_id: int | None, chosen: PodSecurity | None = None) -> dict[str, Any]:
    """The security context of a pod. user_id: user and group; None: the platform assigns them.

    What a runtime has chosen goes before.
    """
    ids = {} if user_id is None else dict.fromkeys(("runAsUser", "runAsGroup", "fsGroup"), user_id)
    if chosen is not None:
        ids |= chosen.model_dump(by_alias=True, exclude_none=True)
    return {"runAsNonRoot": True, **ids, "seccompProfile": {"type": "RuntimeDefault"}}


def container_security() -> dict[str, Any]:
    """The security context of every container."""
    return {
        "privileged": False,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def pull_secrets(own: Sequence[SecretReference], fetcher: Fetcher) -> list[dict[str, str]]:
    """The Secrets with which images are pulled: the service's own, and the chart's."""
    names = dict.fromkeys((*(secret.name for secret in own), *fetcher.image_pull_secrets))
    return [{"name": name} for name in names]
