"""A revision is drafted once for each version of its spec, its runtime, its class and the settings."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from tailbound.controller.drafts import Drafts
from tailbound.objects.fields import Object
from tailbound.reconcile import decide
from tailbound.reconcile.model import Observation
from tailbound.revisions.record import Revision
from tailbound.revisions.rendering import Rendering, RenderRequest
from tailbound.revisions.template import expand

from tests.support.simulated.objects import spec
from tests.support.simulated.simulator import SETTINGS, Simulator


@dataclass
class Renderer:
    """Expands in this process, and counts."""

    requests: list[RenderRequest] = field(default_factory=list)

    async def render(self, request: RenderRequest) -> Rendering:
        self.requests.append(request)
        return expand(request)


def _newer(raw: Object) -> dict[str, Any]:
    changed = copy.deepcopy(dict(raw))
    changed["metadata"]["resourceVersion"] = "newer"
    return changed


def _edited(seen: Observation) -> Observation:
    service = copy.deepcopy(dict(seen.service))
    service["metadata"]["generation"] += 1
    service["spec"]["model"] = spec()["model"] | {"sha256": "e" * 64}
    return replace(seen, service=service)


def _edited_class(raw: Object) -> Object:
    return {**raw, "metadata": {**raw["metadata"], "generation": 2}}


CHANGES: dict[str, Callable[[Observation], Observation]] = {
    "spec": _edited,
    "runtime": lambda seen: replace(
        seen, cluster_runtimes={name: _newer(raw) for name, raw in seen.cluster_runtimes.items()}
    ),
    "class": lambda seen: replace(
        seen, hardware_classes={name: _edited_class(raw) for name, raw in seen.hardware_classes.items()}
    ),
    "settings": lambda seen: replace(
        seen, settings=replace(SETTINGS, fetcher=replace(SETTINGS.fetcher, image="another"))
    ),
}


async def test_idle_poll_drafts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    simulator, renderer = Simulator(), Renderer()
    simulator.settle()
    drafts = Drafts(renderer)
    first = await drafts.of(decide.read(simulator.observation()))
    assert isinstance(first, Revision)
    monkeypatch.setattr("tailbound.reconcile.desired.pod_template", None)
    for _ in range(5):
        assert await drafts.of(decide.read(simulator.observation())) is first
    assert len(renderer.requests) == 1


@pytest.mark.parametrize("change", CHANGES)
async def test_change_of_what_a_draft_is_made_from_drafts_again(change: str) -> None:
    simulator, renderer = Simulator(), Renderer()
    simulator.settle()
    drafts, seen = Drafts(renderer), simulator.observation()
    await drafts.of(decide.read(seen))
    changed = decide.read(CHANGES[change](seen))
    again = await drafts.of(changed)
    assert len(renderer.requests) == 2
    assert again == decide.draft(changed, expand(renderer.requests[-1]))


async def test_spec_without_runtime_is_a_problem_each_time_and_renders_nothing() -> None:
    simulator, renderer = Simulator(cluster_runtimes={}), Renderer()
    reading = decide.read(simulator.observation())
    assert await Drafts(renderer).of(reading) == decide.draft(reading, None) is not None
    assert renderer.requests == []
