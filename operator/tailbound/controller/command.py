"""`tailbound operator`: read the environment, run until a signal, and exit with a status."""

import argparse
import asyncio
import gc
import os
import signal
import sys
from collections.abc import Mapping, Sequence

import uvloop

from tailbound.controller.defaults import load_defaults
from tailbound.controller.operator import Operator, OperatorDependencies
from tailbound.controller.settings import read_settings
from tailbound.environment import SettingError, process_variables
from tailbound.kube.connection import load_configuration
from tailbound.telemetry.logs import configure, logger

_LOG = logger(__name__)
DESCRIPTION = "Reconcile InferenceServices. Everything is configured by environment variables."

# Stored objects hold no cycles, and are most of the memory: the collector is to look at them rarely while
# they are listed, and never again after that.
GC_THRESHOLDS = (100_000, 50, 50)


def main(argv: Sequence[str]) -> int:
    """Run the operator. Returns 0 after a clean stop, 2 for wrong settings; exits with 1 on a fault."""
    argparse.ArgumentParser(prog="tailbound operator", description=DESCRIPTION).parse_args(list(argv))
    configure()
    try:
        return uvloop.run(_run(process_variables()))
    except SettingError as error:
        sys.stderr.write(f"tailbound operator: {error}\n")
        return 2


async def _run(environ: Mapping[str, str]) -> int:
    settings = read_settings(environ)
    gc.set_threshold(*GC_THRESHOLDS)
    defaults = () if settings.defaults_dir is None else load_defaults(settings.defaults_dir)
    stop = asyncio.Event()

    def take_signals() -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)

    take_signals()
    operator = Operator(
        settings,
        lambda: load_configuration(environ),
        defaults,
        OperatorDependencies(started=take_signals, listed=gc.freeze),
    )
    try:
        await operator.run(stop)
    except Exception:
        _LOG.exception("the operator ends")
        # At once: whatever still runs here must not write another word.
        os._exit(1)
    return 0
