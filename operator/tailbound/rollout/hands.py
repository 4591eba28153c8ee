"""What people ask of a rollout: annotations on the InferenceService that name a revision.

An annotation is acted on once per value: `churn-r7-9xq1` and `churn-r7-9xq1/again` are two requests. What
was acted on is remembered for as long as the annotation is there.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tailbound.api.names import GROUP, HANDS, HANDS_BY_ANNOTATION, PAUSE_ANNOTATION

_LONGEST_KEY = 512


@dataclass(frozen=True)
class Hands:
    """The annotations that are there, and those of them that were acted on."""

    values: Mapping[str, str]
    """By annotation."""
    by: str | None
    """The user who set them, where that is known."""
    handled: tuple[str, ...]
    """NAME=VALUE of annotations that are still there and were acted on."""

    def revision(self, annotation: str) -> str | None:
        """The revision that an annotation names, if it was not acted on yet."""
        value = self.values.get(annotation)
        if value is None or _key(annotation, value) in self.handled:
            return None
        return value.partition("/")[0]

    def after(self, annotation: str) -> "Hands":
        """The hands once this annotation was acted on."""
        return Hands(self.values, self.by, (*self.handled, _key(annotation, self.values[annotation])))

    def pauses(self, revision: str) -> bool:
        """Whether this revision is to keep its weight: a state, not a request."""
        return self.values.get(PAUSE_ANNOTATION, "").partition("/")[0] == revision


def read_hands(annotations: Mapping[str, str], handled: Iterable[str]) -> Hands:
    """The hands among an object's annotations."""
    values = {name: annotations[name] for name in HANDS if name in annotations}
    present = {_key(name, value) for name, value in values.items()}
    return Hands(
        values,
        annotations.get(HANDS_BY_ANNOTATION),
        tuple(key for key in handled if key in present),
    )


def _key(annotation: str, value: str) -> str:
    return f"{annotation.removeprefix(f'{GROUP}/')}={value}"[:_LONGEST_KEY]
