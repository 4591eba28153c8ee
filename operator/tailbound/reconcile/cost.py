"""What the pods of a service cost in an hour, by the prices of their hardware classes. Pure.

| the class of a pod that has a node | cost of the service |
|---|---|
| has no price, or one per Device and no devices, or cannot be read | not known |
| has a price per Device | devices of the class x price |
| has a price per CPU | CPUs that the pod's containers request x price |
| has a price per Pod | price |

Without pods it is 0 if the class that the spec asks for first has a price, and not known otherwise.
"""

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal

from tailbound.api.hardwareclass import HardwareClass, HardwareClassSpec, PriceUnit
from tailbound.api.parsing import InvalidObject, parse
from tailbound.api.quantities import Quantity
from tailbound.objects.fields import Object, child, children
from tailbound.objects.pod import Pod


def cost_per_hour(
    pods: Iterable[tuple[Pod, str | None]], classes: Mapping[str, Object], wanted: str | None
) -> str | None:
    """The cost, as a number without exponent; None where it is not known.

    pods: those that have a node, each with its class, None if it is not known; wanted: the class that further
    pods would be of.
    """
    if not any(child(stored, "spec", "price") for stored in classes.values()):
        return None
    costs = [_cost(pod, _spec(name, classes)) for pod, name in pods]
    known = [cost for cost in costs if cost is not None]
    if len(known) < len(costs) or not (costs or _priced(_spec(wanted, classes))):
        return None
    return f"{sum(known, Decimal()).normalize():f}"


def _spec(name: str | None, classes: Mapping[str, Object]) -> HardwareClassSpec | None:
    stored = classes.get(name or "")
    found = parse(HardwareClass, stored) if stored is not None else None
    return None if found is None or isinstance(found, InvalidObject) else found.spec


def _priced(spec: HardwareClassSpec | None) -> bool:
    return spec is not None and spec.price is not None


def _cost(pod: Pod, spec: HardwareClassSpec | None) -> Decimal | None:
    if spec is None or spec.price is None:
        return None
    match spec.price.unit or (PriceUnit.DEVICE if spec.devices else PriceUnit.CPU):
        case PriceUnit.DEVICE if not spec.devices:
            return None
        case PriceUnit.DEVICE:
            units = Decimal(spec.devices)
        case PriceUnit.CPU:
            units = sum(_requested_cpus(pod), Decimal())
        case PriceUnit.POD:
            units = Decimal(1)
    return units * spec.price.amount


def _requested_cpus(pod: Pod) -> Iterator[Decimal]:
    for container in children(child(pod.raw, "spec"), "containers"):
        try:
            yield Quantity.parse(str(child(container, "resources", "requests").get("cpu", "0"))).amount
        except ValueError:  # of a foreign container
            continue
