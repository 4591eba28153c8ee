"""Memory that is pinned for a device, with a library of our own in place of CUDA's."""

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tailbound_runtime.devices import Cuda


@pytest.mark.parametrize("allows", [True, False])
def test_memory_is_pinned_until_its_last_view_is_gone(monkeypatch: pytest.MonkeyPatch, allows: bool) -> None:
    pinned: set[int | None] = set()

    def register(address: ctypes.c_void_p, *_: object) -> int:
        if allows:
            pinned.add(address.value)
        return 0 if allows else 2  # an error of CUDA's

    library = SimpleNamespace(
        cudaSetDevice=lambda _: 0,
        cudaHostRegister=register,
        cudaHostUnregister=lambda address: pinned.remove(address.value),
    )
    monkeypatch.setattr(ctypes, "CDLL", lambda _: library)
    array: Any = Cuda("12.8", 0).pinned((4, 2), np.float32)
    assert pinned == ({array.ctypes.data} if allows else set())
    view, array = array[:1], None
    assert bool(pinned) is allows
    del view
    assert pinned == set()
