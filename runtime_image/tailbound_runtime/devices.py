"""Where a model runs: ONNX Runtime's execution providers, their options, and the device's memory."""

import ctypes
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from tailbound_runtime.errors import ModelLoadError
from tailbound_runtime.tensors import Array

CPU: Final = "CPUExecutionProvider"
CUDA: Final = "CUDAExecutionProvider"

GRAPHS_OPTION: Final = "enable_cuda_graph"

_NO_MEMORY: Final = (
    "failed to allocate memory",
    "is smaller than requested bytes",  # the arena's limit
    "out of memory",
    "alloc_failed",  # cuBLAS and cuDNN
    "bad_alloc",
    "bad allocation",
)


def choose_providers(available: Sequence[str], device_visible: bool, asked: Sequence[str] = ()) -> list[str]:
    """The providers to run on, in their order. Raises ModelLoadError if that cannot be what is wanted.

    | asked for | a device is visible | this build has | chosen |
    |---|---|---|---|
    | some | (any) | all of them | these |
    | some | (any) | not all of them | error |
    | none | no | (any) | CPU |
    | none | yes | CUDA | CUDA, then CPU |
    | none | yes | no CUDA | error: a service with a device must not have the latency of a CPU |
    """
    missing = [name for name in asked if name not in available]
    if missing:
        raise ModelLoadError(
            f"TAILBOUND_PROVIDERS asks for {missing[0]}, which this build of ONNX Runtime does not have: it "
            f"has {', '.join(available)}"
        )
    if asked:
        return list(asked)
    if not device_visible:
        return [CPU]
    if CUDA not in available:
        raise ModelLoadError(
            "this container was given a device, but this build of ONNX Runtime has no CUDAExecutionProvider: "
            "use an image with onnxruntime-gpu, a hardware class without devices, or set "
            "TAILBOUND_PROVIDERS=CPUExecutionProvider to leave the device unused"
        )
    return [CUDA, CPU]


def choose_device(engine: str, has: Sequence[str], device_visible: bool, asked: Sequence[str] = ()) -> str:
    """What an engine without fall-backs runs on. Raises ModelLoadError if that cannot be what is wanted.

    | asked for | a device is visible | this engine has | chosen |
    |---|---|---|---|
    | one | (any) | it | this one |
    | one | (any) | not it | error |
    | several | (any) | (any) | error: which one would it be? |
    | none | no | (any) | the CPU |
    | none | yes | (any) | error: a service with a device must not have the latency of a CPU |
    """
    if len(asked) > 1:
        raise ModelLoadError(
            f"TAILBOUND_PROVIDERS is {','.join(asked)}: name one of them, as {engine} has no fall-back"
        )
    if asked and asked[0] not in has:
        raise ModelLoadError(
            f"TAILBOUND_PROVIDERS asks for {asked[0]}, which {engine} does not have here: it has "
            f"{', '.join(has)}"
        )
    if asked:
        return asked[0]
    if device_visible:
        raise ModelLoadError(
            f"this container was given a device, and {engine} would leave it unused: use a hardware class "
            "without devices, an engine that runs on it, or set TAILBOUND_PROVIDERS to one of: "
            f"{', '.join(has)}"
        )
    return "CPU"


def asks_for_graphs(options: Mapping[str, str]) -> bool | None:
    """Whether these options of a device ask for CUDA graphs, or for none; None if they do not say."""
    asked = options.get(GRAPHS_OPTION)
    return None if asked is None else asked.lower() in ("1", "true")


def with_options(
    providers: Sequence[str],
    options: Mapping[str, str],
    memory_limit: int | None,
    stream: int | None = None,
) -> list[tuple[str, Mapping[str, str]]]:
    """The providers as ONNX Runtime takes them: options and limit are for devices, not for the CPU.

    stream: the address of the one that CUDA graphs are recorded of; None: there are none
    """
    limit = {} if memory_limit is None else {"gpu_mem_limit": str(memory_limit)}
    # Otherwise the arena grows by powers of two, and fails below the limit.
    grows = {} if memory_limit is None else {"arena_extend_strategy": "kSameAsRequested"}
    graphs = {} if stream is None else {GRAPHS_OPTION: "1", "user_compute_stream": str(stream)}
    cuda = {**limit, **grows, **options, **graphs}
    given = {CPU: {}, CUDA: cuda}
    return [(name, given.get(name, options)) for name in providers]


def is_out_of_memory(text: str) -> bool:
    """Whether this error of ONNX Runtime, CUDA or its libraries says that memory did not suffice."""
    lower = text.lower()
    return any(sign in lower for sign in _NO_MEMORY)


def nvidia_device_visible(dev: Path = Path("/dev")) -> bool:
    """Whether the container was given an NVIDIA device."""
    return any(dev.glob("nvidia[0-9]*"))


def device_visible(dev: Path = Path("/dev")) -> bool:
    """Whether the container was given a device of NVIDIA, or one of those that OpenVINO runs on."""
    return nvidia_device_visible(dev) or any(dev.glob("dri/renderD*")) or any(dev.glob("accel/accel*"))


@dataclass(frozen=True)
class Memory:
    """Bytes of a device's memory, whichever process uses them."""

    used: int
    total: int


class Cuda:
    """CUDA's runtime library, which ONNX Runtime has loaded, for one device."""

    def __init__(self, version: str, device: int) -> None:
        """Raises OSError if the library of this version is not there."""
        self._library = ctypes.CDLL(f"libcudart.so.{version.partition('.')[0]}")
        self._device = device

    def memory(self) -> Memory | None:
        """The memory of the device; None if the device does not answer."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        if self._library.cudaSetDevice(self._device):
            return None
        if self._library.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total)):
            return None
        return Memory(total.value - free.value, total.value)

    def pinned(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """An array that the device copies from at full speed; an ordinary one if the system allows no more.

        It is pinned as long as it is there: other memory may have its address afterwards, and the device
        would go on to read the old one.
        """
        array = np.empty(shape, dtype)
        address = ctypes.c_void_p(array.ctypes.data)
        self._library.cudaSetDevice(self._device)
        if not self._library.cudaHostRegister(address, ctypes.c_size_t(array.nbytes), ctypes.c_uint(0)):
            weakref.finalize(array, self._unpin, address).atexit = False
        return array

    def _unpin(self, address: ctypes.c_void_p) -> None:
        self._library.cudaSetDevice(self._device)
        self._library.cudaHostUnregister(address)
