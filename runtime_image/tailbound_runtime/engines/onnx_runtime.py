"""ONNX models on ONNX Runtime."""

from tailbound_runtime.devices import choose_providers, nvidia_device_visible
from tailbound_runtime.engine import Engine, Order
from tailbound_runtime.session import Session, available_providers


def load(order: Order) -> Engine:
    """Load an ONNX file. Raises ModelLoadError."""
    providers = choose_providers(available_providers(), nvidia_device_visible(), order.providers)
    return Session.load(
        order.path, order.threads, providers, order.device_options, order.memory_limit, order.few_sizes
    )
