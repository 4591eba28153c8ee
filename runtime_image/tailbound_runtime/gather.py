"""One copy of many pieces of memory, made by the kernel while other threads have the interpreter.

Python's own copies hold the interpreter's lock, and numpy's let go of it once for each piece and then wait
for it as often: the event loop or the copy would stand still.
"""

import ctypes
import os
from collections.abc import Sequence
from typing import Final

import numpy as np

from tailbound_runtime.tensors import Array

LEAST_BYTES: Final = 256 * 2**10
"""Less is copied sooner than the call is made."""
MOST_PIECES: Final = 1024  # of one call: the kernel's IOV_MAX

_read: Final = getattr(ctypes.CDLL(None), "process_vm_readv", None)
if _read is not None:
    _read.restype = ctypes.c_ssize_t
    _read.argtypes = [
        ctypes.c_int,
        *(ctypes.c_void_p, ctypes.c_ulong),
        *(ctypes.c_void_p, ctypes.c_ulong),
        ctypes.c_ulong,
    ]


def gathered(place: Array, pieces: Sequence[Array]) -> bool:
    """Whether the pieces are in `place` now, one after the other; all of these are contiguous.

    False if they are few or small, or the system does not allow this call: then `place` holds anything.
    """
    size = sum([piece.nbytes for piece in pieces])
    if _read is None or size < LEAST_BYTES or len(pieces) > MOST_PIECES:
        return False
    vectors = np.array(
        [(place.__array_interface__["data"][0], size)]
        + [(piece.__array_interface__["data"][0], piece.nbytes) for piece in pieces],
        np.uint64,
    )
    at = vectors.ctypes.data
    return bool(_read(os.getpid(), at, 1, at + vectors.strides[0], len(pieces), 0) == size)
