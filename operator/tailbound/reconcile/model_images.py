"""What keeps the node from mounting a model that is an image: `oci://` in spec.model.uri.

The kubelet pulls it before the fetch container starts, and reports a failure at that container, in the words
of the registry.

| what the registry says | reason |
|---|---|
| unauthorized, denied, forbidden, no basic auth | SourceForbidden |
| not found, manifest or name unknown | SourceNotFound |
| anything else, as that it is not reached, or has a certificate of an unknown authority | SourceUnreachable |
"""

import re
from typing import Final

from tailbound.api.conditions import Reason
from tailbound.api.runtime_contract import SOURCE_VOLUME
from tailbound.objects.fields import child, children, text
from tailbound.objects.pod import Pod

_REASONS: Final = (
    (
        re.compile(r"unauthorized|denied|forbidden|no basic auth|\b40[13]\b", re.IGNORECASE),
        Reason.SOURCE_FORBIDDEN,
        "spec.imagePullSecrets must name a Secret that may pull it",
    ),
    (
        re.compile(r"not found|not known|(manifest|name)[ _]unknown|\b404\b", re.IGNORECASE),
        Reason.SOURCE_NOT_FOUND,
        "correct spec.model.uri, whose digest is that of the image's manifest",
    ),
)
_OTHERWISE: Final = (Reason.SOURCE_UNREACHABLE, "the node tries it again")


def reference_of(pod: Pod) -> str | None:
    """The image that the pod mounts as its model; None if it mounts none."""
    volumes = children(child(pod.raw, "spec"), "volumes")
    source = next((each for each in volumes if text(each, "name") == SOURCE_VOLUME), {})
    return text(child(source, "image"), "reference") or None


def failure_of(why: str) -> tuple[Reason, str]:
    """The reason and the remedy for a pull that failed with these words."""
    return next(((reason, remedy) for words, reason, remedy in _REASONS if words.search(why)), _OTHERWISE)
