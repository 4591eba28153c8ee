"""`tailbound operator`: read the environment, run until a signal, and exit with a status."""

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence

from tailbound.controller.defaults import load_defaults
from tailbound.controller.operator import Dependencies, Operator
from tailbound.controller.settings import InvalidSetting, read_settings
from tailbound.kube.connection import load_configuration
from tailbound.reconcile import decide
from tailbound.telemetry.logs import configure, logger

_LOG = logger(__name__)
DESCRIPTION = "Reconcile InferenceServices. Everything is configured by environment variables."


def main(argv: Sequence[str]) -> int:
    """Run the operator. Returns 0 after a clean stop, 2 for wrong settings; exits with 1 on a fault."""
    argparse.ArgumentParser(prog="tailbound operator", description=DESCRIPTION).parse_args(list(argv))
    configure()
    try:
        return asyncio.run(_run(os.environ))
    except InvalidSetting as error:
        sys.stderr.write(f"tailbound operator: {error}\n")
        return 2


async def _run(environ: Mapping[str, str]) -> int:
    settings = read_settings(environ)
    defaults = () if settings.defaults_dir is None else load_defaults(settings.defaults_dir)
    stop = asyncio.Event()

    def take_signals() -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)

    take_signals()
    operator = Operator(
        settings,
        lambda: load_configuration(environ),
        decide,
        defaults,
        Dependencies(started=take_signals),
    )
    try:
        await operator.run(stop)
    except Exception:
        _LOG.exception("the operator ends")
        # At once: whatever still runs here must not write another word.
        os._exit(1)
    return 0
