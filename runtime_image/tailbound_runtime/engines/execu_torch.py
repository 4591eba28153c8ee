"""ExecuTorch programs in .pte files, on ExecuTorch's portable kernels and XNNPACK.

ExecuTorch holds Python's lock during a run, so that a process of its own makes them. It cannot stop a run.
"""

from typing import Final

from tailbound_runtime.engine import Engine, Order
from tailbound_runtime.engines import child_process

_PROGRAM: Final = f"{__name__}_program"


def load(order: Order) -> Engine:
    """Load a .pte file. Raises ModelLoadError; ImportError without the packages."""
    order.check_cpu_only("ExecuTorch")
    return child_process.load(_PROGRAM, order)
