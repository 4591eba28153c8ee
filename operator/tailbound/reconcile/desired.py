"""The revision that the spec as it is asks for: found among the stored ones, or made from a rendering.

| stored for this spec | runtime and class | rendering | outcome |
|---|---|---|---|
| readable | any | any | that revision; a difference to a fresh rendering is only reported |
| corrupt | any | any | problem RevisionCorrupt |
| none | not found, denied | none | that problem |
| none | found | awaited | nothing yet |
| none | found | failed, or refused as a pod | problem RuntimeInvalid |
| none | found | too large to store | problem InvalidSpec |
| none | found | rendered | a new revision |
"""

import json
from dataclasses import dataclass
from typing import TypeAlias

from tailbound.api.conditions import Reason
from tailbound.api.parsing import InvalidObject, parse
from tailbound.api.servingruntime import ServerContainer
from tailbound.reconcile.model import Rendered, RenderFailed, Rendering, RenderRequest, Settings
from tailbound.reconcile.owned_state import OwnedState
from tailbound.reconcile.selection import Choice, Problem, choose
from tailbound.revisions.identity import canonical_json, revision_name
from tailbound.revisions.pod import Fetcher, Ingredients, context, pod_template
from tailbound.revisions.record import DATA_LIMIT_BYTES, CorruptRevisionError, Revision, from_object
from tailbound.revisions.relevant import digest, relevant
from tailbound.revisions.restricted import violations


@dataclass(frozen=True)
class DraftVersion:
    """The versions of everything that a draft is made from: equal versions make equal drafts."""

    revision: str
    spec_hash: str
    service: tuple[str, int]
    """uid and generation."""
    runtime: tuple[str, str]
    """uid and resourceVersion."""
    hardware_class: tuple[str, str]
    """uid and resourceVersion."""
    settings: Settings


@dataclass(frozen=True)
class Intended:
    """What the spec asks for, before anything is rendered."""

    spec_hash: str
    name: str
    """The name of the stored revision for this spec, or of the one to make."""
    number: int
    stored: bool
    choice: Choice | Problem

    def version(self, world: OwnedState) -> DraftVersion | None:
        """What a draft would be made from, or None if there is nothing to render from."""
        if isinstance(self.choice, Problem):
            return None
        service = world.service.metadata
        runtime, hardware_class = self.choice.runtime.metadata, self.choice.hardware_class.metadata
        return DraftVersion(
            revision=self.name,
            spec_hash=self.spec_hash,
            service=(service.uid, service.generation),
            runtime=(runtime.uid, runtime.resource_version),
            hardware_class=(hardware_class.uid, hardware_class.resource_version),
            settings=world.observation.settings,
        )

    def request(self, world: OwnedState) -> RenderRequest | None:
        """What to render, or None if there is nothing to render from."""
        if isinstance(self.choice, Problem):
            return None
        server = self.choice.runtime.spec.server.model_dump(mode="json", by_alias=True, exclude_none=True)
        return RenderRequest(
            runtime=self.choice.runtime_title,
            template_json=canonical_json(server),
            context_json=canonical_json(context(world.service, self.choice.hardware_class, self.name)),
        )


Draft: TypeAlias = Revision | Problem | None
"""The revision that the spec would be made into now, or why it cannot be; None: a rendering is awaited."""


@dataclass(frozen=True)
class Desired:
    """The outcome: a revision, a problem, or neither while a rendering is awaited."""

    revision: Revision | None = None
    is_new: bool = False
    problem: Problem | None = None
    outdated: Problem | None = None
    """How a fresh rendering differs from the stored template, in words."""
    rendering_known: bool = True
    """False while it is not known whether a fresh rendering differs."""


def intend(world: OwnedState) -> Intended:
    """What the spec asks for."""
    spec_hash = digest(world.service.spec, world.refresh)
    stored = world.made_from(digest(world.service.spec, ""), world.refresh)
    if stored is not None:
        return Intended(spec_hash, stored, world.numbers[stored], stored=True, choice=choose(world))
    number = world.next_number
    name = revision_name(world.service.metadata.name, number, spec_hash)
    return Intended(spec_hash, name, number, stored=False, choice=choose(world))


def find_or_make(world: OwnedState, intent: Intended, draft: Draft) -> Desired:
    """The revision that the intent comes to."""
    if not intent.stored:
        if isinstance(draft, Revision):
            return Desired(revision=draft, is_new=True)
        return Desired(problem=draft)
    try:
        revision = from_object(world.stored_revisions[intent.name])
    except CorruptRevisionError as corrupt:
        remedy = f"delete it (kubectl delete controllerrevision {intent.name}) and a new revision is made"
        return Desired(problem=Problem(Reason.REVISION_CORRUPT, f"{corrupt}; {remedy}"))
    return Desired(revision=revision, outdated=_outdated(revision, draft), rendering_known=draft is not None)


def _outdated(stored: Revision, fresh: Draft) -> Problem | None:
    untouched = f"the pods of {stored.name} are untouched"
    if isinstance(fresh, Problem):
        return Problem(fresh.reason, f"{untouched}, but could not be made again: {fresh.message}")
    if fresh is None or fresh.template_json == stored.template_json:
        return None
    return Problem(
        Reason.RUNTIME_CHANGED,
        f"{fresh.runtime}, HardwareClass {fresh.hardware_class} or Tailbound has changed since "
        f"{stored.name} was made; {untouched}: kubectl tailbound refresh takes the change up, as does the "
        "next edit of the spec",
    )


def draft_of(world: OwnedState, intent: Intended, rendering: Rendering) -> Draft:
    """A revision from a rendering."""
    choice = intent.choice
    if isinstance(choice, Problem):
        return choice
    if isinstance(rendering, RenderFailed):
        return Problem(Reason.RUNTIME_INVALID, rendering.message)
    if rendering is None:
        return None
    server = _server(rendering)
    if isinstance(server, InvalidObject):
        return Problem(
            Reason.RUNTIME_INVALID, f"{choice.runtime_title}, rendered: spec.server.{server.message}"
        )
    template = pod_template(
        Ingredients(
            revision=intent.name,
            service=world.service,
            server=server,
            drain=choice.runtime.spec.drain,
            hardware_class=choice.hardware_class,
            fetcher=_fetcher(world.observation.settings),
        )
    )
    refused = violations(template["spec"], world.service.spec.service_account_name)
    if refused:
        return Problem(
            Reason.RUNTIME_INVALID,
            f"{choice.runtime_title} renders a pod that is refused: {'; '.join(refused)}",
        )
    revision = Revision(
        name=intent.name,
        number=intent.number,
        spec_hash=intent.spec_hash,
        spec_json=canonical_json(relevant(world.service.spec, world.refresh)),
        runtime=choice.runtime_title,
        hardware_class=choice.hardware_class.metadata.name,
        template_json=canonical_json(template),
    )
    return revision if revision.size_bytes <= DATA_LIMIT_BYTES else _oversized(revision)


def _oversized(revision: Revision) -> Problem:
    return Problem(
        Reason.INVALID_SPEC,
        f"the revision would take {revision.size_bytes} bytes, over the limit of {DATA_LIMIT_BYTES}: "
        f"shorten spec.env or spec.annotations, or the server template of {revision.runtime}",
    )


def _server(rendering: Rendered) -> ServerContainer | InvalidObject:
    """The rendered container: expansion may have made a value that its field does not allow."""
    return parse(ServerContainer, json.loads(rendering.template_json))


def _fetcher(settings: Settings) -> Fetcher:
    return Fetcher(
        image=settings.fetch_image,
        image_pull_policy=settings.image_pull_policy,
        image_pull_secrets=settings.image_pull_secrets,
        allowed_hosts=settings.fetch_allowed_hosts,
        denied_cidrs=settings.fetch_denied_cidrs,
    )
