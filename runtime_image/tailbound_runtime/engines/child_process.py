"""Runs an engine in a process of its own, for a library that holds Python's lock during a run.

In the server's process it would hold up all requests and probes meanwhile.
"""

import multiprocessing
import signal
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import Connection

from tailbound_runtime.engine import Loaded, Order, Run, TensorSpec
from tailbound_runtime.errors import ModelFailedError, ModelInputError, ModelLoadError
from tailbound_runtime.tensors import Array


@dataclass(frozen=True)
class Description:
    """The engine in the process, once it has loaded the model."""

    inputs: Sequence[TensorSpec]
    outputs: Sequence[TensorSpec]
    platform: str
    provider: str


class InChildProcess(Loaded):
    """An engine in another process, which one thread uses at a time."""

    def __init__(self, connection: Connection, description: Description) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        super().__init__(
            description.inputs,
            description.outputs,
            description.platform,
            description.provider,
            inlines=False,  # it stops no run
        )

    def _infer(self, outputs: Sequence[str], inputs: Mapping[str, Array], run: Run) -> list[Array]:
        with self._lock:
            try:
                self._connection.send((list(outputs), dict(inputs)))
                answer: list[Array] | Exception = self._connection.recv()
            except (EOFError, OSError) as error:
                raise ModelFailedError("the process that runs the model has ended") from error
        if isinstance(answer, Exception):
            raise answer
        return answer


def load(module: str, order: Order) -> InChildProcess:
    """What this module's `load` loads in another process. Raises ModelLoadError and ImportError."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    context.Process(target=_serve, args=(theirs, module, order), daemon=True).start()
    theirs.close()
    try:
        answer: Description | Exception = ours.recv()
    except (EOFError, OSError) as error:
        raise ModelLoadError(
            f"the process that loads {order.path} has ended: give the container more memory, or if it has "
            "enough, export the model again"
        ) from error
    if isinstance(answer, Exception):
        raise answer
    return InChildProcess(ours, answer)


def _serve(connection: Connection, module: str, order: Order) -> None:
    """Load the model, and run it on what comes until the other side is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server drains first
    try:
        loader = import_module(module).load
    except (ImportError, OSError) as error:  # the second one: of a library that a package needs
        connection.send(ImportError(str(error)))
        return
    try:
        engine = loader(order)
    except ModelLoadError as error:
        connection.send(error)
        return
    specs = list(engine.inputs.values()), list(engine.outputs.values())
    connection.send(Description(*specs, engine.platform, engine.provider))
    while True:
        try:
            outputs, inputs = connection.recv()
        except EOFError:
            return
        try:
            answer: list[Array] | Exception = engine.run(outputs, inputs, Run())
        except (ModelInputError, ModelFailedError) as error:
            answer = error
        connection.send(answer)
