"""The API server, with the rights of the person who runs the command."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Final, TypeAlias

from kubernetes.client import ApiClient, AppsV1Api, CoordinationV1Api, CoreV1Api, CustomObjectsApi
from kubernetes.client.exceptions import ApiException
from kubernetes.config import ConfigException, list_kube_config_contexts, new_client_from_config
from urllib3.exceptions import HTTPError

from tailbound.api.inferenceservice import InferenceService
from tailbound.api.names import (
    APPLICATION,
    APPLICATION_LABEL,
    COMPONENT_LABEL,
    GATEWAY_COMPONENT,
    GATEWAY_METRICS_PORT,
    GROUP,
    OPERATOR_LEASE,
    SERVICE_LABEL,
    VERSION,
)
from tailbound.api.parsing import InvalidObject, parse
from tailbound.api.runtime_contract import FETCH_CONTAINER
from tailbound.cli.downloads import FetchLog, fetches
from tailbound.cli.leader import silence
from tailbound.cli.proposal import Surroundings
from tailbound.cli.subject import CommandError, Entry, Subject, UnansweredError, entry_of, subject_of
from tailbound.objects.lease import Lease

_PLURAL: Final = "inferenceservices"
_SECONDS: Final = 30
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_TOO_MANY: Final = 429
_SERVER_ERRORS: Final = 500
_LOG_LINES: Final = 20
_LOG_BYTES: Final = 64 * 1024


StoredService: TypeAlias = InferenceService | InvalidObject
"""A service of a list: one that cannot be read hides no other."""


class NotFoundError(CommandError):
    """There is no object of this name."""


class ConflictError(Exception):
    """Another client wrote the object since it was read."""


@dataclass(frozen=True)
class Cluster:
    """Requests to one API server. Every method raises CommandError with the server's words if it refuses."""

    client: ApiClient
    namespace: str
    """Where to look if the command names no namespace."""

    @classmethod
    def connect(cls, kubeconfig: Path | None, context: str | None) -> "Cluster":
        """Through a kubeconfig, as kubectl finds it. Raises CommandError."""
        path = str(kubeconfig) if kubeconfig is not None else None
        try:
            contexts, active = list_kube_config_contexts(config_file=path)
            chosen = next((each for each in contexts if each["name"] == context), None) if context else active
            if chosen is None:
                raise CommandError(
                    f"context {context} is not in the kubeconfig: see kubectl config get-contexts"
                )
            client = new_client_from_config(config_file=path, context=chosen["name"])
        except (ConfigException, OSError) as error:
            raise CommandError(f"no usable kubeconfig: {error}") from error
        return cls(client, chosen["context"].get("namespace") or "default")

    def subject(self, namespace: str, name: str) -> Subject:
        """One service with its history."""
        with _in_namespace(namespace):
            raw = self._asked(
                CustomObjectsApi(self.client).get_namespaced_custom_object,
                *(GROUP, VERSION, namespace, _PLURAL, name),
            )
        return subject_of(raw, self._revisions(namespace, name))

    def _revisions(self, namespace: str, name: str) -> list[dict[str, Any]]:
        found = self._asked(
            AppsV1Api(self.client).list_namespaced_controller_revision,
            namespace,
            label_selector=f"{SERVICE_LABEL}={name}",
        )
        items: list[dict[str, Any]] = self.client.sanitize_for_serialization(found)["items"]
        return items

    def revision(self, namespace: str, name: str) -> Entry:
        """One revision of any service."""
        with _in_namespace(namespace):
            found = self._asked(AppsV1Api(self.client).read_namespaced_controller_revision, name, namespace)
        return entry_of(self.client.sanitize_for_serialization(found))

    def services(self, namespace: str | None, selector: str = "") -> list[StoredService]:
        """Services of a namespace that have these labels; None: of all of them."""
        api = CustomObjectsApi(self.client)
        if namespace is None:
            found = self._asked(
                api.list_cluster_custom_object, GROUP, VERSION, _PLURAL, label_selector=selector
            )
        else:
            place = (GROUP, VERSION, namespace, _PLURAL)
            found = self._asked(api.list_namespaced_custom_object, *place, label_selector=selector)
        return [parse(InferenceService, item) for item in found["items"]]

    def surroundings(self, namespace: str, name: str) -> Surroundings:
        """What a service of this name is made from, and its revisions."""
        api, place = CustomObjectsApi(self.client), (GROUP, VERSION)
        classes = self._asked(api.list_cluster_custom_object, *place, "hardwareclasses")["items"]
        everywhere = self._asked(api.list_cluster_custom_object, *place, "clusterservingruntimes")["items"]
        here = self._asked(api.list_namespaced_custom_object, *place, namespace, "servingruntimes")["items"]
        return Surroundings(
            hardware_classes=_by_name(classes),
            runtimes=_by_name(here),
            cluster_runtimes=_by_name(everywhere),
            revisions=tuple(self._revisions(namespace, name)),
        )

    def service(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        """One service as it is stored; None if there is none."""
        found = self._asked(
            CustomObjectsApi(self.client).list_namespaced_custom_object,
            *(GROUP, VERSION, namespace, _PLURAL),
            field_selector=f"metadata.name={name}",
        )
        return next(iter(found["items"]), None)

    def gateway_metrics(self, namespace: str) -> dict[str, str]:
        """/metrics of every gateway pod by its name, through the API server's proxy."""
        api = CoreV1Api(self.client)
        labels = f"{APPLICATION_LABEL}={APPLICATION},{COMPONENT_LABEL}={GATEWAY_COMPONENT}"
        pods = self._asked(api.list_namespaced_pod, namespace, label_selector=labels).items
        return {pod.metadata.name: self._metrics(api, namespace, pod.metadata.name) for pod in pods}

    def _metrics(self, api: CoreV1Api, namespace: str, pod: str) -> str:
        answer = self._asked(
            api.connect_get_namespaced_pod_proxy_with_path,
            *(f"{pod}:{GATEWAY_METRICS_PORT}", namespace, "metrics"),
            _preload_content=False,
        )
        return str(answer.data.decode())

    def silence(self) -> str | None:
        """The message that no operator leads, by the clock of the API server; None if they are hidden."""
        leases = CoordinationV1Api(self.client).list_lease_for_all_namespaces_with_http_info
        try:
            found, _, headers = self._asked(leases, field_selector=f"metadata.name={OPERATOR_LEASE}")
        except CommandError:
            return None
        items = self.client.sanitize_for_serialization(found)["items"]
        return silence(map(Lease, items), parsedate_to_datetime(headers["Date"]))

    def fetch_logs(self, subject: Subject) -> tuple[FetchLog, ...]:
        """The ends of the logs of the pods that download now; none of what the user may not read."""
        metadata, api = subject.service.metadata, CoreV1Api(self.client)
        try:
            found = self._asked(
                api.list_namespaced_pod,
                metadata.namespace,
                label_selector=f"{SERVICE_LABEL}={metadata.name}",
            )
            pods = self.client.sanitize_for_serialization(found)["items"]
            names = [pod["metadata"]["name"] for pod in pods if fetches(pod)]
            return tuple(FetchLog(name, self._log(api, metadata.namespace, name)) for name in names)
        except CommandError:
            return ()

    def _log(self, api: CoreV1Api, namespace: str, pod: str) -> str:
        options = {"container": FETCH_CONTAINER, "tail_lines": _LOG_LINES, "limit_bytes": _LOG_BYTES}
        return str(self._asked(api.read_namespaced_pod_log, pod, namespace, **options))

    def annotate(self, service: InferenceService, changes: Mapping[str, str | None]) -> None:
        """Set annotations, remove those of None. Raises ConflictError if the service was written since."""
        metadata = service.metadata
        patch = {"metadata": {"resourceVersion": metadata.resource_version, "annotations": dict(changes)}}
        self._asked(
            CustomObjectsApi(self.client).patch_namespaced_custom_object,
            *(GROUP, VERSION, metadata.namespace, _PLURAL, metadata.name, patch),
            _content_type="application/merge-patch+json",
        )

    def _asked(self, request: Any, *arguments: Any, **options: Any) -> Any:
        try:
            return request(*arguments, **options, _request_timeout=_SECONDS)
        except ApiException as error:
            if error.status == _CONFLICT:
                raise ConflictError from error
            if error.status == _NOT_FOUND:
                raise NotFoundError(_words(error)) from error
            unanswered = error.status == _TOO_MANY or (error.status or 0) >= _SERVER_ERRORS
            raise (UnansweredError if unanswered else CommandError)(_words(error)) from error
        except HTTPError as error:
            raise UnansweredError(f"the API server does not answer: {error}") from error


@contextmanager
def _in_namespace(namespace: str) -> Iterator[None]:
    """Name the namespace where an object is not found: a forgotten --namespace is the usual cause."""
    try:
        yield
    except NotFoundError as error:
        raise NotFoundError(f"{error} in namespace {namespace}") from error


def _by_name(items: list[dict[str, Any]]) -> dict[str, Mapping[str, Any]]:
    return {item["metadata"]["name"]: item for item in items}


def _words(error: ApiException) -> str:
    """What the API server said."""
    try:
        return str(json.loads(error.body or "")["message"])
    except (TypeError, ValueError, KeyError):
        return f"the API server answered {error.status} {error.reason}"
