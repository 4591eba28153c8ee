"""Drafts of revisions: the pod template is rendered once for each version of what it is made from."""

from collections import OrderedDict
from typing import Protocol

from tailbound.reconcile.desired import Draft, DraftVersion
from tailbound.reconcile.model import Rendering, RenderRequest
from tailbound.reconcile.snapshot import Reading

# More than one operator has services: a sweep over a fleet that is larger finds nothing.
REMEMBERED = 16_384


class Renders(Protocol):
    """Expands templates outside this process."""

    async def render(self, request: RenderRequest) -> Rendering:
        """The outcome; Transient if it could not be had now."""
        ...


class Drafter(Protocol):
    """The part of the pure core that makes drafts."""

    def draft_version(self, reading: Reading) -> DraftVersion | None:
        """The versions of what a draft is made from; None if nothing can be rendered."""
        ...

    def wanted_rendering(self, reading: Reading) -> RenderRequest | None:
        """The rendering that a draft needs; None if it needs none."""
        ...

    def draft(self, reading: Reading, rendering: Rendering) -> Draft:
        """The draft of this rendering."""
        ...


class Drafts:
    """The newest drafts, by the versions of what they were made from."""

    def __init__(self, renderer: Renders, drafter: Drafter) -> None:
        self._renderer, self._drafter = renderer, drafter
        self._known: OrderedDict[DraftVersion, Draft] = OrderedDict()

    async def of(self, reading: Reading) -> Draft:
        """The draft of what was read. Raises Transient if it could not be rendered now."""
        version = self._drafter.draft_version(reading)
        if version is None:
            return self._drafter.draft(reading, None)
        if version in self._known:
            self._known.move_to_end(version)
            return self._known[version]
        request = self._drafter.wanted_rendering(reading)
        rendering = None if request is None else await self._renderer.render(request)
        made = self._drafter.draft(reading, rendering)
        self._known[version] = made
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return made
