"""What of a pod's security context the author of a runtime chooses: its user and its groups."""

from typing import Annotated, Final

from pydantic import StrictInt

from tailbound.api.schema import Model, whole_number

HIGHEST_ID: Final = 2147483647


class PodSecurity(Model):
    """User and groups of every container of the pod; 0, which is root, is none of them."""

    run_as_user: (
        Annotated[StrictInt, whole_number("runAsUser", 1, HIGHEST_ID, "the number of a user")] | None
    ) = None
    """User, for an image whose files belong to a user of its own. Default: that of the installation."""

    run_as_group: (
        Annotated[StrictInt, whole_number("runAsGroup", 1, HIGHEST_ID, "the number of a group")] | None
    ) = None
    """Group. Default: that of the installation."""

    fs_group: Annotated[StrictInt, whole_number("fsGroup", 1, HIGHEST_ID, "the number of a group")] | None = (
        None
    )
    """Group to which the volumes belong. Default: that of the installation."""
