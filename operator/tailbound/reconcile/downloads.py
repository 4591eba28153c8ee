"""The download of the desired revision's model: whom to ask how far it is, and what to say of it. Pure.

The Job that finds the digest of a source has the name of the revision that is made of it.
"""

from collections.abc import Iterable
from typing import Final

from tailbound.api.runtime_contract import FETCH_CONTAINER, PROGRESS_PORT
from tailbound.objects.metadata import KubernetesObject
from tailbound.objects.pod import Pod
from tailbound.reconcile.model import DownloadRequest
from tailbound.reconcile.owned_state import OwnedState

_ASKED: Final = 3
"""Pods, so that one that only waits for the others is not the only one."""


def wanted(owned: OwnedState, name: str | None) -> DownloadRequest | None:
    """What to ask; None once a pod of the revision has the model, and while none downloads it."""
    report = owned.reports.get(name) if name is not None else None
    if name is None or report is None or report.fetched or not report.fetching:
        return None
    return _request(name, owned.live_pods.get(name, ()))


def of_job(owned: OwnedState, name: str) -> DownloadRequest | None:
    """What to ask of the Job of this name; None while it downloads nothing."""
    job = owned.find("Job", name)
    return _request(name, owned.pods_of_job(KubernetesObject(job).uid)) if job is not None else None


def _request(name: str, pods: Iterable[Pod]) -> DownloadRequest | None:
    hosts = [pod.host for pod in pods if pod.pod_ip and not pod.terminating and _downloads(pod)]
    urls = tuple(f"http://{host}:{PROGRESS_PORT}/" for host in hosts[:_ASKED])
    return DownloadRequest(name, urls) if urls else None


def message(owned: OwnedState, name: str) -> str:
    """How far the revision of this name is, as the end of a message; empty where that is not known.

    What is known may be of the revision before, for as long as no pod of this one has been asked.
    """
    progress = owned.observation.downloads.get(name)
    return f": {progress.text}" if progress is not None else ""


def _downloads(pod: Pod) -> bool:
    statuses = (*pod.init_container_statuses, *pod.container_statuses)
    return any(each.name == FETCH_CONTAINER and each.running for each in statuses)
