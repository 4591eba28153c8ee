"""What applying a service would lead to, decided as the operator decides it. Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tailbound.api.inferenceservice import InferenceService
from tailbound.api.runtime_contract import FETCH_CONTAINER, FetchEnv
from tailbound.cli.subject import service_of
from tailbound.objects.fields import Object
from tailbound.reconcile.desired import Desired, draft_of, find_or_make, intend
from tailbound.reconcile.model import Children, Observation, Settings
from tailbound.reconcile.owned_state import OwnedState
from tailbound.revisions.model_mounts import Fetcher
from tailbound.revisions.record import CorruptRevisionError, Revision, from_object
from tailbound.revisions.template import expand


@dataclass(frozen=True)
class Surroundings:
    """What a service is made from, as the API server returned it."""

    hardware_classes: Mapping[str, Object]
    runtimes: Mapping[str, Object]
    cluster_runtimes: Mapping[str, Object]
    revisions: tuple[Object, ...]
    """ControllerRevisions of the service."""


@dataclass(frozen=True)
class Proposal:
    """A service as it would be, beside what it is."""

    live: InferenceService | None
    """The service as it is; None if it would be created."""
    wanted: InferenceService
    desired: Desired
    """The revision that it would ask for."""
    current: str | None
    """The revision that it asks for now."""
    stable: Revision | None
    """The revision that was fully promoted last."""
    rejected: str | None
    """Why the revision that it would ask for was rejected, if it was."""


def propose(live: Object | None, wanted: Object, around: Surroundings) -> Proposal:
    """What the operator would make of `wanted`. Raises CommandError for a service that cannot be read."""
    seen = _observation(wanted, around)
    owned = OwnedState(seen, service_of(wanted))
    stable = _revision(around, owned.stable)
    owned = replace(owned, observation=replace(seen, settings=_settings(stable)))
    intent = intend(owned)
    request = intent.request(owned)
    draft = draft_of(owned, intent, expand(request) if request is not None else None)
    desired = find_or_make(owned, intent, draft)
    name = desired.revision.name if desired.revision is not None else None
    marks = owned.marks.get(name or "")
    rejection = marks.rejected if marks is not None else None
    before = OwnedState(replace(seen, service=live), service_of(live)) if live is not None else None
    return Proposal(
        live=before.service if before is not None else None,
        wanted=owned.service,
        desired=desired,
        current=intend(before).name if before is not None else None,
        stable=stable,
        rejected=f"{rejection.reason}: {rejection.message}" if rejection is not None else None,
    )


def _observation(service: Object, around: Surroundings) -> Observation:
    return Observation(
        service=service,
        hardware_classes=around.hardware_classes,
        runtimes=around.runtimes,
        cluster_runtimes=around.cluster_runtimes,
        children=Children(revisions=around.revisions),
        gateways={},
        settings=_settings(None),
    )


def _revision(around: Surroundings, name: str | None) -> Revision | None:
    found = next((each for each in around.revisions if each["metadata"]["name"] == name), None)
    try:
        return from_object(found) if found is not None else None
    except CorruptRevisionError:
        return None


def _settings(stable: Revision | None) -> Settings:
    """What the installation adds to a pod, as the revision that serves has it: users cannot read more."""
    plain = Settings(operator_namespace="", gateway_service="", cluster_domain="", fetcher=Fetcher("", ""))
    if stable is None:
        return plain
    pod: dict[str, Any] = stable.template["spec"]
    fetch = next(each for each in pod["initContainers"] if each["name"] == FETCH_CONTAINER)
    environment = {each["name"]: each["value"] for each in fetch["env"]}
    own = {each["name"] for each in json.loads(stable.spec_json).get("imagePullSecrets", ())}
    secrets = (each["name"] for each in pod.get("imagePullSecrets", ()))
    fetcher = Fetcher(
        image=fetch["image"],
        image_pull_policy=fetch["imagePullPolicy"],
        image_pull_secrets=tuple(name for name in secrets if name not in own),
        allowed_hosts=_items(environment[FetchEnv.ALLOWED_HOSTS]),
        denied_cidrs=_items(environment[FetchEnv.DENIED_CIDRS]),
        allowed_cidrs=_items(environment.get(FetchEnv.ALLOWED_CIDRS, "")),
        timeout_seconds=int(environment.get(FetchEnv.TIMEOUT_SECONDS, plain.fetcher.timeout_seconds)),
        proxy=environment.get(FetchEnv.PROXY),
        ca_certificates=environment.get(FetchEnv.CA_CERTIFICATES),
    )
    return replace(plain, fetcher=fetcher, serving_user_id=pod["securityContext"].get("runAsUser"))


def _items(text: str) -> tuple[str, ...]:
    return tuple(text.split(",")) if text else ()
