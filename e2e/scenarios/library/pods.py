"""The pods that scenarios need beside Tailbound: the model store, and the client that requests come from."""

from collections.abc import Mapping
from functools import partial
from typing import Final

from kubernetes.dynamic.exceptions import UnprocessibleEntityError

from e2e.scenarios.library.api import Api, Object
from e2e.scenarios.library.traffic import POD as CLIENT
from e2e.scenarios.library.traffic import PORT as CLIENT_PORT
from e2e.scenarios.library.waiting import Unmet, wait_for

NAMESPACE: Final = "tailbound-e2e"
STORE: Final = "model-store"
STORE_PORT: Final = 8080
USER: Final = 65532
START_SECONDS: Final = 300
GONE_SECONDS: Final = 60


def deploy(api: Api, registry: str, tag: str, contents: Mapping[str, str]) -> None:
    """Run both, if they do not run yet, and wait until they are ready.

    contents: a name for the content of each image by the image's name, as far as it is known. The tag stays
    the same: a pod says what its image holds, and makes way for one of another content.
    """
    api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    api.apply(_store_service())
    for pod in (
        _pod(name, f"{registry}/tailbound-{name}:{tag}", contents.get(name, ""), port)
        for name, port in ((STORE, STORE_PORT), (CLIENT, CLIENT_PORT))
    ):
        _apply(api, pod)
    for name in (STORE, CLIENT):
        wait_for(f"pod {name}", partial(_ready, api, name), START_SECONDS)


def _apply(api: Api, pod: Object) -> None:
    """Run this pod; one of an earlier version of this file makes way, as pods cannot be changed."""
    name = pod["metadata"]["name"]
    try:
        api.apply(pod)
    except UnprocessibleEntityError:
        api.delete("Pod", name, NAMESPACE, grace_seconds=0)
        wait_for(f"end of pod {name}", partial(_gone, api, name), GONE_SECONDS)
        api.apply(pod)


def _gone(api: Api, name: str) -> bool | Unmet:
    return Unmet("it is there") if api.get("Pod", name, NAMESPACE) else True


def _ready(api: Api, name: str) -> bool | Unmet:
    status = api.need("Pod", name, NAMESPACE).get("status", {})
    found = {condition["type"]: condition["status"] for condition in status.get("conditions", [])}
    return True if found.get("Ready") == "True" else Unmet(str(status))


def _probe(port: int) -> Object:
    return {"httpGet": {"path": "/_healthz", "port": port}, "periodSeconds": 1}


def _store_service() -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": STORE, "namespace": NAMESPACE},
        "spec": {"selector": {"app": STORE}, "ports": [{"port": STORE_PORT}]},
    }


def _pod(name: str, image: str, content: str, port: int) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": name}},
        "spec": {
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": USER,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": name,
                    "image": image,
                    "imagePullPolicy": "IfNotPresent",
                    # Of a pod that is there its value cannot be changed, as an annotation could.
                    "env": [{"name": "IMAGE_CONTENT", "value": content}],
                    "readinessProbe": _probe(port),
                    "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}},
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "capabilities": {"drop": ["ALL"]},
                    },
                }
            ],
        },
    }
