"""What people ask of a rollout: annotations on the InferenceService that name a revision.

An annotation is acted on once per value: `churn-r7-9xq1` and `churn-r7-9xq1/again` are two requests. The
record of the revision that it names remembers what was acted on, so that a lost status asks for nothing
twice, and what is being acted on, so that a lost annotation ends nothing: another value does.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from tailbound.api.names import HANDLED_ANNOTATIONS, PAUSE_ANNOTATION, REQUESTED_BY_ANNOTATION


@dataclass(frozen=True)
class Actions:
    """The annotations that are there, and those of them that were acted on."""

    values: Mapping[str, str]
    """By annotation."""
    by: str | None
    """The user who set them, where that is known."""
    handled: Set[str]
    """Annotations whose value was acted on."""
    under_way: Mapping[str, str] = field(default_factory=dict)
    """By annotation that is not there any more, its value that is being acted on."""

    def value(self, annotation: str) -> str | None:
        """The value that counts: the one that is there, or else the one that is being acted on."""
        return self.values.get(annotation, self.under_way.get(annotation))

    def revision(self, annotation: str) -> str | None:
        """The revision that an annotation names, if it was not acted on yet."""
        value = self.value(annotation)
        return None if value is None or annotation in self.handled else named(value)

    def open(self) -> dict[str, str]:
        """The revisions named by actions that were not carried out yet, by annotation."""
        asked = {annotation: self.revision(annotation) for annotation in HANDLED_ANNOTATIONS}
        return {annotation: revision for annotation, revision in asked.items() if revision is not None}

    def asked(self, revision: str) -> tuple[str, ...]:
        """The annotations that name this revision and were not acted on yet."""
        return tuple(annotation for annotation, name in self.open().items() if name == revision)

    def pauses(self, revision: str) -> bool:
        """Whether this revision is to keep its weight: a state, not a request."""
        return named(self.value(PAUSE_ANNOTATION) or "") == revision


def named(value: str) -> str:
    """The revision that the value of an action names."""
    return value.partition("/")[0]


def read_actions(
    annotations: Mapping[str, str],
    handled: Mapping[str, Mapping[str, str]],
    under_way: Mapping[str, Mapping[str, str]],
) -> Actions:
    """The actions among an object's annotations. The others are by revision what its record remembers."""
    known = (*HANDLED_ANNOTATIONS, PAUSE_ANNOTATION)
    values = {name: annotations[name] for name in known if name in annotations}
    lost = {action: value for _, each in sorted(under_way.items()) for action, value in each.items()}
    return Actions(
        values,
        annotations.get(REQUESTED_BY_ANNOTATION),
        {name for name, value in values.items() if handled.get(named(value), {}).get(name) == value},
        {action: value for action, value in lost.items() if action not in values},
    )
