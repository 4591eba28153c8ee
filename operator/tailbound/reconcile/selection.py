"""Which runtime serves a model, and on which hardware class."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from tailbound.api.conditions import Reason
from tailbound.api.hardwareclass import HardwareClass
from tailbound.api.names import DEFAULT_CLASS_ANNOTATION
from tailbound.api.parsing import InvalidObject, parse_shared
from tailbound.api.servingruntime import ClusterServingRuntime, ServingRuntime
from tailbound.objects.fields import Object, child, children, number, text
from tailbound.objects.metadata import KubernetesObject
from tailbound.objects.unknown import Unknown
from tailbound.reconcile.device_memory import TooLarge, memory_verdict
from tailbound.reconcile.owned_state import OwnedState
from tailbound.rollout.problem import Problem

Runtime: TypeAlias = ServingRuntime | ClusterServingRuntime


@dataclass(frozen=True)
class Choice:
    """What a revision is rendered from."""

    runtime: Runtime
    hardware_classes: tuple[HardwareClass, ...]
    """In order of preference."""

    @property
    def runtime_title(self) -> str:
        """Kind and name, for people."""
        return f"{type(self.runtime).__name__} {self.runtime.metadata.name}"


_APPLE: Final = (
    "Core ML computes on Apple's systems only, and pods run Linux: export the model that it was converted "
    "from to ONNX, and write the format onnx"
)
_MOST_KNOWN: Final = 1024
_ONLY_ELSEWHERE: Final = dict.fromkeys(("coreml", "mlmodel", "mlpackage"), _APPLE)
"""Formats that no server in a cluster computes, and what to do instead."""


def choose(owned: OwnedState) -> Choice | Problem:
    """Runtime and class of the spec as it is now, or what is in the way."""
    runtime = _runtime(owned)
    if isinstance(runtime, Problem):
        return runtime
    named = owned.service.spec.hardware.classes or (_default_class(owned.observation.hardware_classes),)
    found = [_hardware_class(owned, name) for name in named]
    problem = next((each for each in found if isinstance(each, Problem)), None)
    classes = tuple(each for each in found if isinstance(each, HardwareClass))
    return problem if problem is not None else Choice(runtime, classes)


def _runtime(owned: OwnedState) -> Runtime | Problem:
    named = owned.service.spec.runtime
    return _runtime_by_format(owned) if named is None else _runtime_by_name(owned, named.name)


def _runtime_by_name(owned: OwnedState, name: str) -> Runtime | Problem:
    """A namespaced one goes before a cluster-wide one of the same name, even if it is invalid."""
    seen, namespace = owned.observation, owned.service.metadata.namespace
    if name in seen.runtimes:
        found: Runtime | InvalidObject = parse_shared(ServingRuntime, seen.runtimes[name])
    elif name in seen.cluster_runtimes:
        found = parse_shared(ClusterServingRuntime, seen.cluster_runtimes[name])
    else:
        return Problem(
            Reason.RUNTIME_NOT_FOUND,
            f"spec.runtime.name is {name!r}, and there is neither a ServingRuntime of that name in namespace "
            f"{namespace} nor a ClusterServingRuntime; there are: "
            f"{_names(seen.runtimes, seen.cluster_runtimes)}",
        )
    if isinstance(found, InvalidObject):
        return Problem(Reason.RUNTIME_INVALID, f"{found.kind} {found.name}: {found.message}")
    return _that_serves(owned, found)


def _that_serves(owned: OwnedState, runtime: Runtime) -> Runtime | Problem:
    model_format = owned.service.spec.model.format
    if runtime.spec.serves(model_format):
        return runtime
    formats = ", ".join(supported.name for supported in runtime.spec.formats)
    return Problem(
        Reason.RUNTIME_INVALID,
        f"spec.model.format is {model_format!r}, which {type(runtime).__name__} {runtime.metadata.name} does "
        f"not serve: its formats are {formats}; change spec.model.format, spec.runtime.name or the runtime",
    )


def _runtime_by_format(owned: OwnedState) -> Runtime | Problem:
    """Namespaced before cluster-wide, then by priority, then by name. An invalid one serves no format."""
    seen, model_format = owned.observation, owned.service.spec.model.format
    kinds: tuple[tuple[type[Runtime], Mapping[str, Object]], ...] = (
        (ServingRuntime, seen.runtimes),
        (ClusterServingRuntime, seen.cluster_runtimes),
    )
    for kind, stored in kinds:
        found = next(_valid(kind, _that_name(model_format, stored)), None)
        if found is not None:
            return found
    why = _ONLY_ELSEWHERE.get(model_format)
    return Problem(
        Reason.RUNTIME_NOT_FOUND,
        f"spec.model.format is {model_format!r}, and no valid ServingRuntime or ClusterServingRuntime "
        f"serves it; {why or f'there are: {_names(seen.runtimes, seen.cluster_runtimes)}'}",
    )


def _that_name(model_format: str, stored: Mapping[str, Object]) -> Sequence[Object]:
    """Stored runtimes that name the format, the one to prefer first.

    Every decision on every service chooses, and a cluster may have dozens of runtimes: what does not serve
    the format is not parsed.
    """
    fitting = [raw for raw in stored.values() if model_format in _FORMATS.of(raw)]
    return sorted(fitting, key=lambda raw: (-(number(child(raw, "spec"), "priority") or 0), _name(raw)))


class _Formats:
    """The formats that stored runtimes name, read once from each state of one.

    An object is known by its identity: stores share it, and never change it. A few are remembered.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[frozenset[str], Object]] = {}

    def of(self, raw: Object) -> frozenset[str]:
        """The names of its formats."""
        known = self._known.get(id(raw))
        if known is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            names = frozenset(text(each, "name") for each in children(child(raw, "spec"), "formats"))
            # With the object itself: while it is here, no other one gets its identity.
            known = self._known[id(raw)] = (names, raw)
        return known[0]


_FORMATS: Final = _Formats()


def _name(raw: Object) -> str:
    return KubernetesObject(raw).name


def _valid(kind: type[Runtime], stored: Iterable[Object]) -> Iterator[Runtime]:
    for raw in stored:
        runtime = parse_shared(kind, raw)
        if not isinstance(runtime, InvalidObject):
            yield runtime


def _hardware_class(owned: OwnedState, name: str | None) -> HardwareClass | Problem:
    """The class of this name; None if there is no default."""
    classes = owned.observation.hardware_classes
    if name is None:
        return Problem(
            Reason.HARDWARE_CLASS_NOT_FOUND,
            "spec.hardware.class is not set, and no HardwareClass is the default; set it to one of: "
            f"{_names(classes)}; or annotate one with {DEFAULT_CLASS_ANNOTATION}=true",
        )
    if name not in classes:
        return Problem(
            Reason.HARDWARE_CLASS_NOT_FOUND,
            f"spec.hardware.class is {name!r}, and there is no such HardwareClass; there are: "
            f"{_names(classes)}",
        )
    found = parse_shared(HardwareClass, classes[name])
    if isinstance(found, InvalidObject):
        return Problem(Reason.HARDWARE_CLASS_NOT_FOUND, f"HardwareClass {name} is invalid: {found.message}")
    namespace = owned.service.metadata.namespace
    if not found.spec.allows(namespace):
        return Problem(
            Reason.HARDWARE_CLASS_DENIED,
            f"HardwareClass {name} does not allow namespace {namespace}: choose another class in "
            "spec.hardware.class, or ask for the namespace to be added to its spec.allowedNamespaces",
        )
    lacking = _lacking_devices(owned, found)
    if lacking is not None:
        return lacking
    memory = memory_verdict(owned.service.spec.model.size, found)
    return Problem(Reason.MODEL_TOO_LARGE, memory.message) if isinstance(memory, TooLarge) else found


def _lacking_devices(owned: OwnedState, found: HardwareClass) -> Problem | None:
    """What keeps the devices of a class from being claimed by any pod, before one waits for them."""
    known, name = owned.observation.device_classes, found.metadata.name
    if isinstance(known, Unknown):
        return (
            None
            if found.spec.resource_claim is None
            else Problem(
                Reason.DYNAMIC_ALLOCATION_UNAVAILABLE,
                f"HardwareClass {name} has spec.resourceClaim, and {known.reason}: upgrade to "
                "Kubernetes 1.34 or newer, or name the devices in spec.resources of the HardwareClass",
            )
        )
    missing = next((each for each in found.spec.device_classes if each not in known), None)
    if missing is None:
        return None
    return Problem(
        Reason.DEVICE_CLASS_NOT_FOUND,
        f"HardwareClass {name} asks for devices of DeviceClass {missing}, and there is none of this name; "
        f"there are: {_names(known)}; correct the HardwareClass, or install the driver of these devices",
    )


def _default_class(classes: Mapping[str, Object]) -> str | None:
    """The first by name of several defaults: while the mark is moved, two have it for a moment."""
    return min((name for name, raw in classes.items() if _is_default(raw)), default=None)


def _is_default(raw: Object) -> bool:
    return KubernetesObject(raw).annotations.get(DEFAULT_CLASS_ANNOTATION) == "true"


def _names(*groups: Mapping[str, Object]) -> str:
    return ", ".join(sorted({name for group in groups for name in group})) or "none"
