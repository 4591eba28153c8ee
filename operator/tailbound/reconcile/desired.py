"""The revision that the spec as it is asks for: found among the stored ones, or made from a rendering.

| stored for this spec | runtime and class | rendering | outcome |
|---|---|---|---|
| readable | any | any | that revision; a difference to a fresh rendering is only reported |
| corrupt | any | any | problem RevisionCorrupt |
| none | not found, denied, too small for the model | none | that problem |
| none | found, and the digest of the model is not known yet | any | nothing yet, or what is in the way |
| none | found | awaited | nothing yet |
| none | found | failed, or refused as a pod | problem RuntimeInvalid |
| none | found | too large to store | problem InvalidSpec |
| none | found | rendered | a new revision |
"""

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from tailbound.api.conditions import Reason
from tailbound.api.hardwareclass import HardwareClass
from tailbound.api.parsing import InvalidObject, parse
from tailbound.api.servingruntime import RuntimeTemplate
from tailbound.reconcile.class_returns import Attempt, begun
from tailbound.reconcile.device_memory import TooLarge, memory_verdict
from tailbound.reconcile.model import Settings
from tailbound.reconcile.owned_state import OwnedState
from tailbound.reconcile.selection import Choice, choose
from tailbound.reconcile.sources import ModelPin, Unresolved, claim_of_new, model_pin
from tailbound.revisions.claims import ClaimTemplate, claim_template
from tailbound.revisions.identity import canonical_json, revision_name, text_hash
from tailbound.revisions.model_cache import claim_of
from tailbound.revisions.pod import Ingredients, context, pod_template, without_device_memory
from tailbound.revisions.record import DATA_LIMIT_BYTES, CorruptRevisionError, Revision
from tailbound.revisions.relevant import relevant
from tailbound.revisions.rendering import Rendered, RenderFailed, Rendering, RenderRequest
from tailbound.revisions.resolved import ResolvedModel
from tailbound.revisions.restricted import violations
from tailbound.rollout.problem import Problem


@dataclass(frozen=True)
class DraftVersion:
    """The versions of everything that a draft is made from: equal versions make equal drafts."""

    revision: str
    spec_hash: str
    service: tuple[str, int]
    """uid and generation."""
    runtime: tuple[str, str]
    """uid and resourceVersion."""
    hardware_classes: tuple[tuple[str, int], ...]
    """uid and generation of each: its status makes no difference."""
    settings: Settings
    pin: ModelPin
    claim: str | None


@dataclass(frozen=True)
class Intended:
    """What the spec asks for, before anything is rendered."""

    spec_json: str
    """What makes a revision, as one stores it: fields of the spec, and what asks for one of its own."""
    name: str
    """The name of the stored revision for this spec, or of the one to make."""
    number: int
    stored: bool
    choice: Choice | Problem
    pin: ModelPin = None
    claim: str | None = None
    """The claim that has the model, where it is not the one of the model's own name."""

    @cached_property
    def spec_hash(self) -> str:
        """The hash of these fields."""
        return text_hash(self.spec_json)

    def version(self, owned: OwnedState) -> DraftVersion | None:
        """What a draft would be made from, or None if there is nothing to render from."""
        if isinstance(self.choice, Problem):
            return None
        service = owned.service.metadata
        runtime, classes = self.choice.runtime.metadata, self.choice.hardware_classes
        return DraftVersion(
            revision=self.name,
            spec_hash=self.spec_hash,
            service=(service.uid, service.generation),
            runtime=(runtime.uid, runtime.resource_version),
            hardware_classes=tuple((each.metadata.uid, each.metadata.generation) for each in classes),
            settings=owned.observation.settings,
            pin=self.pin,
            claim=self.claim,
        )

    def request(self, owned: OwnedState) -> RenderRequest | None:
        """What to render, or None if there is nothing to render from."""
        if isinstance(self.choice, Problem):
            return None
        spec = self.choice.runtime.spec
        parts = spec.model_dump(
            mode="json", by_alias=True, exclude_none=True, include=set(RuntimeTemplate.model_fields)
        )
        contexts = [
            canonical_json(context(owned.service, each, self.name)) for each in self.choice.hardware_classes
        ]
        return RenderRequest(
            runtime=self.choice.runtime_title,
            template_json=canonical_json(parts),
            context_json=contexts[0],
            namespace=owned.service.metadata.namespace,
            further_contexts=tuple(contexts[1:]),
        )


Draft: TypeAlias = Revision | Problem | Unresolved | None
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
    unresolved: Unresolved | None = None
    """The digest of the model has to be found first."""

    @property
    def name(self) -> str | None:
        """The name of the revision; None while there is none."""
        return self.revision.name if self.revision is not None else None


def intend(owned: OwnedState) -> Intended:
    """What the spec asks for."""
    plain = _spec_json(owned, "")
    asked = _spec_json(owned, owned.refresh) if owned.refresh else plain
    stored, chosen = owned.made_from(text_hash(plain), owned.refresh), choose(owned)
    attempt = begun(owned, stored) if isinstance(chosen, Choice) else None
    if attempt is not None:
        return _returning(owned, attempt, chosen)
    if stored is not None:
        known = owned.revision(stored)
        kept = _kept(known)
        return Intended(plain, stored, owned.numbers[stored], True, chosen, *kept)
    number = owned.next_number
    name = revision_name(owned.service.metadata.name, number, text_hash(asked))
    pin = model_pin(owned, name)
    return Intended(asked, name, number, False, chosen, pin, claim_of_new(owned, pin))


def _spec_json(owned: OwnedState, refresh: str) -> str:
    """The fields of the spec as a revision stores them; `refresh`: what asks for one of its own."""
    return canonical_json(relevant(owned.service.spec, refresh))


def _returning(owned: OwnedState, attempt: Attempt, choice: Choice | Problem) -> Intended:
    """The revision that returns to a preferred class: the same spec and the same model."""
    stable = owned.revision(owned.stable)
    asked = _spec_json(owned, str(attempt))
    name = revision_name(owned.service.metadata.name, attempt.number, text_hash(asked))
    return Intended(asked, name, attempt.number, False, choice, *_kept(stable))


def _kept(stored: Revision | None) -> tuple[ModelPin, str | None]:
    """The pin and the claim of a stored revision, which stay those of the pods that are made from it."""
    return (stored.model, claim_of(stored)) if stored is not None else (None, None)


def find_or_make(owned: OwnedState, intent: Intended, draft: Draft) -> Desired:
    """The revision that the intent comes to."""
    if not intent.stored:
        if isinstance(draft, Revision):
            return Desired(revision=draft, is_new=True)
        if isinstance(draft, Unresolved):
            return Desired(problem=draft.problem, unresolved=draft)
        return Desired(problem=draft)
    revision = owned.revisions[intent.name]
    if isinstance(revision, CorruptRevisionError):
        command = owned.commands.kubectl("delete controllerrevision", intent.name)
        remedy = f"delete it ({command}), so that a new revision is created"
        return Desired(problem=Problem(Reason.REVISION_CORRUPT, f"{revision}; {remedy}"))
    outdated = _outdated(revision, draft, owned.commands.tailbound("refresh"))
    return Desired(revision=revision, outdated=outdated, rendering_known=draft is not None)


def _outdated(stored: Revision, fresh: Draft, refresh: str) -> Problem | None:
    untouched = f"the pods of {stored.name} keep running"
    if isinstance(fresh, Problem):
        return Problem(fresh.reason, f"{untouched}, but could not be made again: {fresh.message}")
    if not isinstance(fresh, Revision) or _same_pods(fresh, stored):
        return None
    return Problem(
        Reason.RUNTIME_CHANGED,
        f"{fresh.runtime}, HardwareClass {', '.join(fresh.classes)} or Tailbound has changed since "
        f"{stored.name} was made; {untouched}: {refresh} applies the change, as does the next "
        "edit of the spec",
    )


def draft_of(owned: OwnedState, intent: Intended, rendering: Rendering) -> Draft:
    """A revision from a rendering."""
    choice = intent.choice
    if isinstance(choice, Problem):
        return choice
    if isinstance(rendering, RenderFailed):
        return Problem(Reason.RUNTIME_INVALID, rendering.message)
    if isinstance(intent.pin, Unresolved):
        return intent.pin
    too_large = _too_large(owned, choice, intent.pin)
    if too_large is not None or rendering is None:
        return too_large
    made = _rendered(owned, intent, choice, rendering, intent.pin)
    stored = owned.revision(intent.name) if intent.stored else None
    same = isinstance(made, Revision) and stored is not None and _templates(made) == _templates(stored)
    # The stored one, so that drafts that are remembered take no memory of their own.
    return stored if same else made


def _too_large(owned: OwnedState, choice: Choice, model: ResolvedModel | None) -> Problem | None:
    """The first class whose devices do not hold the weights that the Job has read."""
    size, read = owned.service.spec.model.size, model.weight_bytes if model is not None else None
    verdicts = (memory_verdict(size, each, read) for each in choice.hardware_classes)
    lack = next((each for each in verdicts if isinstance(each, TooLarge)), None)
    return Problem(Reason.MODEL_TOO_LARGE, lack.message) if lack is not None else None


def _rendered(
    owned: OwnedState, intent: Intended, choice: Choice, rendering: Rendered, model: ResolvedModel | None
) -> Revision | Problem:
    """A revision from a rendering that did not fail."""
    templates, checked = [], _stored_templates(owned, intent)
    for hardware_class, text in zip(choice.hardware_classes, rendering.all, strict=True):
        made = _template(owned, intent, choice, hardware_class, text, model)
        if isinstance(made, Problem):
            return made
        template = canonical_json(made)
        refused = () if template in checked else _refused(owned, intent, hardware_class, made)
        if refused:
            return Problem(
                Reason.RUNTIME_INVALID,
                f"{choice.runtime_title} renders a pod that is refused: {'; '.join(refused)}",
            )
        templates.append((hardware_class.metadata.name, template))
    name, template = templates[0]
    revision = Revision(
        name=intent.name,
        number=intent.number,
        spec_hash=intent.spec_hash,
        spec_json=intent.spec_json,
        runtime=choice.runtime_title,
        hardware_class=name,
        template_json=template,
        choices=tuple(templates) if len(templates) > 1 else (),
        model=model,
        claims=_claims(intent.name, choice),
    )
    return revision if revision.size_bytes <= DATA_LIMIT_BYTES else _oversized(revision)


def _claims(revision: str, choice: Choice) -> tuple[ClaimTemplate, ...]:
    """The templates of claims of all classes, each content once."""
    made = (claim_template(revision, each) for each in choice.hardware_classes)
    by_name: dict[str, ClaimTemplate] = {}
    for claim in made:
        if claim is not None:
            by_name.setdefault(claim.name, claim)
    return tuple(by_name.values())


def _template(
    owned: OwnedState,
    intent: Intended,
    choice: Choice,
    hardware_class: HardwareClass,
    rendered: str,
    model: ResolvedModel | None,
) -> dict[str, Any] | Problem:
    """The pod template for one class, from the rendered parts of the runtime."""
    parts = _parts(rendered)
    if isinstance(parts, InvalidObject):
        return Problem(Reason.RUNTIME_INVALID, f"{choice.runtime_title}, rendered: spec.{parts.message}")
    return pod_template(
        Ingredients(
            revision=intent.name,
            service=owned.service,
            server=parts.server,
            files=parts.files,
            init_containers=parts.init_containers,
            security=choice.runtime.spec.security_context,
            volumes=choice.runtime.spec.volumes,
            drain=choice.runtime.spec.drain,
            hardware_class=hardware_class,
            fetcher=owned.observation.settings.fetcher,
            user_id=owned.observation.settings.serving_user_id,
            tells_class=len(choice.hardware_classes) > 1,
            inference_paths=choice.runtime.spec.inference_calls,
            metadata_path=choice.runtime.spec.metadata_path,
            metrics=choice.runtime.spec.metrics,
            resolved=model,
            claim=intent.claim,
        )
    )


def _refused(
    owned: OwnedState, intent: Intended, hardware_class: HardwareClass, template: dict[str, Any]
) -> tuple[str, ...]:
    """What the template asks for and may not have."""
    claim = claim_template(intent.name, hardware_class)
    claims = frozenset({claim.name} if claim is not None else ())
    return violations(template, owned.service.spec.service_account_name, claims)


def _stored_templates(owned: OwnedState, intent: Intended) -> frozenset[str]:
    """The templates of the stored revision, which were checked when it was read."""
    stored = owned.revision(intent.name) if intent.stored else None
    return frozenset(text for _, text in _of_all_classes(stored)) if stored is not None else frozenset()


def _of_all_classes(revision: Revision) -> tuple[tuple[str, str], ...]:
    """Each class and its template."""
    return revision.choices or ((revision.hardware_class, revision.template_json),)


def _same_pods(fresh: Revision, stored: Revision) -> bool:
    """Whether the pods are the same, save what their fetch container compares the weights with.

    That bears on no pod that serves, and follows spec.model.size, whose edits make no revision.
    """
    if _templates(fresh) == _templates(stored):
        return True
    return _unbounded_templates(fresh) == _unbounded_templates(stored)


def _templates(revision: Revision) -> tuple[tuple[str, str], ...] | str:
    """What its pods are made from: the template, or those of all classes."""
    return revision.choices or revision.template_json


def _unbounded_templates(revision: Revision) -> list[tuple[str, dict[str, Any]]]:
    """The templates of all classes, without the memory of their devices."""
    return [(name, without_device_memory(json.loads(text))) for name, text in _of_all_classes(revision)]


def _oversized(revision: Revision) -> Problem:
    return Problem(
        Reason.INVALID_SPEC,
        f"the revision would take {revision.size_bytes} bytes, over the limit of {DATA_LIMIT_BYTES}: "
        f"shorten spec.env or spec.annotations, or the server template of {revision.runtime}",
    )


def _parts(rendered: str) -> RuntimeTemplate | InvalidObject:
    """The rendered parts: expansion may have made a value that its field does not allow."""
    return parse(RuntimeTemplate, json.loads(rendered))
