"""The hardware of an InferenceService: the classes to choose from, and the one that serves."""

from enum import StrEnum
from typing import Annotated, Final

from pydantic import AwareDatetime, Field, StringConstraints

from tailbound.api.meta import ObjectName
from tailbound.api.quantities import Duration
from tailbound.api.quantity_fields import duration_between
from tailbound.api.schema import SET, Model, Rule

DEFAULT_FALLBACK_AFTER: Final = Duration.parse("5m")
"""For how long pods wait for a node of one hardware class if there are others."""
DEFAULT_RETURN_AFTER: Final = Duration.parse("10m")
"""For how long a preferred class must have had room before a service returns to it."""
LONGEST_MESSAGE: Final = 1024
"""Characters of a message in status.hardware; the API server refuses a status with a longer one."""


class ReturnPolicy(StrEnum):
    """Who returns a service that fell back to a later hardware class."""

    MANUAL = "manual"
    WHEN_ROOM = "whenRoom"


class Hardware(Model):
    """The hardware that serves the model."""

    rules = (
        Rule(
            cel="!has(self.fallbackAfter) || has(self.class) && self.class.size() > 1",
            holds=lambda hardware: hardware.fallback_after is None or len(hardware.classes) > 1,
            message="fallbackAfter is {value}, and there is no other class to fall back to: list several in "
            "class, or remove fallbackAfter",
            quoted="fallback_after",
        ),
        Rule(
            cel="!has(self.return) || self.return != 'whenRoom' || has(self.class) && self.class.size() > 1",
            holds=lambda hardware: (
                hardware.return_policy is not ReturnPolicy.WHEN_ROOM or len(hardware.classes) > 1
            ),
            message="return is whenRoom, and there is no other class to return from: list several in "
            "class, or remove return",
        ),
        Rule(
            cel="!has(self.returnAfter) || has(self.return) && self.return == 'whenRoom'",
            holds=lambda hardware: (
                hardware.return_after is None or hardware.return_policy is ReturnPolicy.WHEN_ROOM
            ),
            message="returnAfter is {value}, and return is not whenRoom: write return: whenRoom, or remove "
            "returnAfter",
            quoted="return_after",
        ),
    )

    classes: Annotated[
        tuple[ObjectName, ...],
        Field(alias="class", max_length=8),
        SET,
    ] = ()
    """Names of HardwareClasses in order of preference, for example [gpu]. A revision whose pods find no node
    of one class for fallbackAfter gets pods of the next. kubectl tailbound refresh returns to the first one.
    Default: the HardwareClass with the annotation tailbound.dev/is-default-class: "true"."""

    fallback_after: (
        Annotated[
            Duration, duration_between("5s", "24h", "for which pods wait for a node of a preferred class")
        ]
        | None
    ) = None
    """Time for which all pods of a revision wait for a node before the next class is tried. Default: 5m."""

    return_policy: Annotated[ReturnPolicy | None, Field(alias="return")] = None
    """manual: only kubectl tailbound refresh returns to a preferred class. whenRoom: a rollout returns once a
    preferred class has had room for all pods of the service for returnAfter; where it is not known whether it
    has, a rollout tries. After a return that did not last, the next one waits twice as long, up to a day.
    Default: manual."""

    return_after: (
        Annotated[Duration, duration_between("5s", "24h", "for which a preferred class must have had room")]
        | None
    ) = None
    """Time for which a preferred class must have had room, and which the service stays where it is at least.
    Default: 10m."""

    def effective_return_after(self) -> Duration:
        """The field, or its default."""
        return self.return_after or DEFAULT_RETURN_AFTER

    def effective_fallback_after(self) -> Duration:
        """The field, or its default."""
        return self.fallback_after or DEFAULT_FALLBACK_AFTER


class HardwareStatus(Model):
    """The hardware of the service."""

    hardware_class: Annotated[str | None, StringConstraints(max_length=253), Field(alias="class")] = None
    """The class of the revision that serves, or is to serve, if the spec lists several."""

    since: AwareDatetime | None = None
    """Since when, if it is not the first one."""

    message: Annotated[str | None, StringConstraints(max_length=LONGEST_MESSAGE)] = None
    """Why it is not the first one; absent if it is."""

    return_message: Annotated[
        str | None, StringConstraints(max_length=LONGEST_MESSAGE), Field(alias="return")
    ] = None
    """Whether and when the service returns to a preferred class, or why not. Absent without return: whenRoom,
    and while the first class serves."""

    room_since: AwareDatetime | None = None
    """Since when a preferred class has had room; absent while none has."""

    attempt: Annotated[str | None, StringConstraints(max_length=64)] = None
    """Name of the return that the next look makes a revision of; absent otherwise."""

    cost_per_hour: Annotated[str | None, StringConstraints(max_length=32)] = None
    """What the pods that have a node cost in an hour, by spec.price of their HardwareClasses and in its
    currency; absent where the class of one of them has no price."""

    memory: Annotated[str | None, StringConstraints(max_length=LONGEST_MESSAGE)] = None
    """Whether the model fits the devices of a pod, with the arithmetic, or why that is not known."""
