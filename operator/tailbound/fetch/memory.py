"""A bound on the memory that a library may take for a file whose author may have made it to do harm.

A few bytes of a format can ask for any amount of memory: the directory of a zip, the dictionary of a
decompressor, the map of a sparse file, the header of a tar archive, lists in JSON. What exceeds the bound is
a MemoryError at the place that asks for it, and the container is not killed for it.
"""

import mmap
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

MOST_MEMORY_BYTES: Final = 192 * 1024 * 1024
"""What is taken for one file, beside what the process has: enough for what `xz -9` makes."""
_STATE: Final = Path("/proc/self/statm")


@contextmanager
def bounded_memory(more_bytes: int) -> Iterator[None]:
    """Let the address space of the process grow by `more_bytes` at most. Raises MemoryError.

    The bound counts the whole process: other threads get a MemoryError, too, if they ask for what is left.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = int(_STATE.read_text().split()[0]) * mmap.PAGESIZE + more_bytes
    tighter = most if soft == resource.RLIM_INFINITY else min(most, soft)
    resource.setrlimit(resource.RLIMIT_AS, (tighter, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
