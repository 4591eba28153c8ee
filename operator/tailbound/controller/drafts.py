"""Drafts of revisions: the pod template is rendered once for each version of what it is made from."""

from collections import OrderedDict
from typing import Protocol

from tailbound.reconcile.decide import draft, draft_version, wanted_rendering
from tailbound.reconcile.desired import Draft, DraftVersion
from tailbound.reconcile.snapshot import Reading
from tailbound.revisions.rendering import Rendering, RenderRequest

# More than one operator has services: a sweep over a fleet that is larger finds nothing.
REMEMBERED = 16_384


class Renders(Protocol):
    """Expands templates outside this process."""

    async def render(self, request: RenderRequest) -> Rendering:
        """The outcome; Transient if it could not be had now."""
        ...


class Drafts:
    """The newest drafts, by the versions of what they were made from."""

    def __init__(self, renderer: Renders) -> None:
        self._renderer = renderer
        self._known: OrderedDict[DraftVersion, Draft] = OrderedDict()

    async def of(self, reading: Reading) -> Draft:
        """The draft of what was read. Raises Transient if it could not be rendered now."""
        version = draft_version(reading)
        if version is None:
            return draft(reading, None)
        if version in self._known:
            self._known.move_to_end(version)
            return self._known[version]
        request = wanted_rendering(reading)
        rendering = None if request is None else await self._renderer.render(request)
        made = draft(reading, rendering)
        self._known[version] = made
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return made
