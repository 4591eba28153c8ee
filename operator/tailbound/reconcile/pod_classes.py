"""Which hardware class a pod is for, where its revision has several."""

from collections.abc import Iterable

from tailbound.api.names import HARDWARE_CLASS_ANNOTATION
from tailbound.objects.pod import Pod
from tailbound.revisions.record import Revision


def class_of(pod: Pod) -> str | None:
    """The class of a pod whose revision has several; None for any other pod."""
    return pod.annotations.get(HARDWARE_CLASS_ANNOTATION)


def of_present_class(pods: Iterable[Pod], revision: Revision | None) -> list[Pod]:
    """The pods without those that wait for a node of another class: they go once the others are ready."""
    if revision is None or len(revision.classes) == 1:
        return list(pods)
    return [pod for pod in pods if class_of(pod) == revision.hardware_class or pod.scheduled]
