"""Which runtime serves a model, and on which hardware class."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tailbound.api.conditions import Reason
from tailbound.api.hardwareclass import HardwareClass
from tailbound.api.inferenceservice import Overload
from tailbound.api.names import DEFAULT_CLASS_ANNOTATION
from tailbound.api.parsing import InvalidObject, parse
from tailbound.api.servingruntime import ClusterServingRuntime, ServingRuntime
from tailbound.reconcile.model import Object
from tailbound.reconcile.owned_state import OwnedState

Runtime: TypeAlias = ServingRuntime | ClusterServingRuntime


@dataclass(frozen=True)
class Problem:
    """Why a revision cannot be made or kept, in one word and one sentence."""

    reason: Reason
    message: str


@dataclass(frozen=True)
class Choice:
    """What a revision is rendered from."""

    runtime: Runtime
    hardware_class: HardwareClass

    @property
    def runtime_title(self) -> str:
        """Kind and name, for people."""
        return f"{type(self.runtime).__name__} {self.runtime.metadata.name}"


def choose(world: OwnedState) -> Choice | Problem:
    """Runtime and class of the spec as it is now, or what is in the way."""
    runtime = _runtime(world)
    if isinstance(runtime, Problem):
        return runtime
    if world.service.spec.overload is Overload.SHED and not runtime.spec.sheds:
        return Problem(
            Reason.RUNTIME_INVALID,
            f"spec.overload is shed, which {type(runtime).__name__} {runtime.metadata.name} does not do: "
            "write queue, choose another runtime in spec.runtime.name, or set spec.sheds of the runtime to "
            "true if its server can",
        )
    hardware_class = _hardware_class(world)
    if isinstance(hardware_class, Problem):
        return hardware_class
    return Choice(runtime, hardware_class)


def _runtime(world: OwnedState) -> Runtime | Problem:
    named = world.service.spec.runtime
    return _runtime_by_format(world) if named is None else _runtime_by_name(world, named.name)


def _runtime_by_name(world: OwnedState, name: str) -> Runtime | Problem:
    """A namespaced one goes before a cluster-wide one of the same name, even if it is invalid."""
    seen, namespace = world.observation, world.service.metadata.namespace
    if name in seen.runtimes:
        found: Runtime | InvalidObject = parse(ServingRuntime, seen.runtimes[name])
    elif name in seen.cluster_runtimes:
        found = parse(ClusterServingRuntime, seen.cluster_runtimes[name])
    else:
        return Problem(
            Reason.RUNTIME_NOT_FOUND,
            f"spec.runtime.name is {name!r}, and there is neither a ServingRuntime of that name in namespace "
            f"{namespace} nor a ClusterServingRuntime; there are: "
            f"{_names(seen.runtimes, seen.cluster_runtimes)}",
        )
    if isinstance(found, InvalidObject):
        return Problem(Reason.RUNTIME_INVALID, f"{found.kind} {found.name}: {found.message}")
    return _that_serves(world, found)


def _that_serves(world: OwnedState, runtime: Runtime) -> Runtime | Problem:
    model_format = world.service.spec.model.format
    if runtime.spec.serves(model_format):
        return runtime
    formats = ", ".join(supported.name for supported in runtime.spec.formats)
    return Problem(
        Reason.RUNTIME_INVALID,
        f"spec.model.format is {model_format!r}, which {type(runtime).__name__} {runtime.metadata.name} does "
        f"not serve: its formats are {formats}; change spec.model.format, spec.runtime.name or the runtime",
    )


def _runtime_by_format(world: OwnedState) -> Runtime | Problem:
    """Namespaced before cluster-wide, then by priority, then by name. An invalid one serves no format."""
    seen, model_format = world.observation, world.service.spec.model.format
    kinds: tuple[tuple[type[Runtime], Mapping[str, Object]], ...] = (
        (ServingRuntime, seen.runtimes),
        (ClusterServingRuntime, seen.cluster_runtimes),
    )
    for kind, stored in kinds:
        fitting = [runtime for runtime in _valid(kind, stored) if runtime.spec.serves(model_format)]
        if fitting:
            return min(fitting, key=lambda runtime: (-runtime.spec.priority, runtime.metadata.name))
    return Problem(
        Reason.RUNTIME_NOT_FOUND,
        f"spec.model.format is {model_format!r}, and no valid ServingRuntime or ClusterServingRuntime "
        f"serves it; there are: {_names(seen.runtimes, seen.cluster_runtimes)}",
    )


def _valid(kind: type[Runtime], stored: Mapping[str, Object]) -> Iterator[Runtime]:
    for raw in stored.values():
        runtime = parse(kind, raw)
        if not isinstance(runtime, InvalidObject):
            yield runtime


def _hardware_class(world: OwnedState) -> HardwareClass | Problem:
    classes, named = world.observation.hardware_classes, world.service.spec.hardware.classes
    name = named[0] if named else _default_class(classes)
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
    found = parse(HardwareClass, classes[name])
    if isinstance(found, InvalidObject):
        return Problem(Reason.HARDWARE_CLASS_NOT_FOUND, f"HardwareClass {name} is invalid: {found.message}")
    namespace = world.service.metadata.namespace
    if not found.spec.allows(namespace):
        return Problem(
            Reason.HARDWARE_CLASS_DENIED,
            f"HardwareClass {name} does not allow namespace {namespace}: choose another class in "
            "spec.hardware.class, or ask for the namespace to be added to its spec.allowedNamespaces",
        )
    return found


def _default_class(classes: Mapping[str, Object]) -> str | None:
    """The first by name of several defaults: while the mark is moved, two have it for a moment."""
    return min((name for name, raw in classes.items() if _is_default(raw)), default=None)


def _is_default(raw: Object) -> bool:
    annotations = raw["metadata"].get("annotations") or {}
    return bool(annotations.get(DEFAULT_CLASS_ANNOTATION) == "true")


def _names(*groups: Mapping[str, Object]) -> str:
    return ", ".join(sorted({name for group in groups for name in group})) or "none"
