"""The command line of `tailbound fetch`: arguments and environment in; status and message out."""

import argparse
import os
import re
import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tailbound.api.runtime_contract import Termination, TerminationReason
from tailbound.fetch.addresses import AddressPolicy, PolicyError
from tailbound.fetch.download import Dependencies, FetchRequest, fetch
from tailbound.fetch.failures import FetchFailedError
from tailbound.fetch.progress import emit
from tailbound.fetch.source import shown

TERMINATION_LIMIT_BYTES: Final = 4096


def main(argv: Sequence[str]) -> int:
    """0: the file is there, verified. 1: it is not to be had, and the message says why. 2: wrong usage."""
    _end_at_sigterm()
    arguments = _arguments(argv)
    order = FetchRequest(arguments.uri, arguments.sha256, arguments.output)
    try:
        world = Dependencies(AddressPolicy.from_env(os.environ))
        emit("starting", uri=shown(order.uri), path=str(order.output))
        message = fetch(order, world)
    except FetchFailedError as error:
        return _end(arguments.termination_log, error.reason, str(error), 1)
    except PolicyError as error:
        return _end(arguments.termination_log, TerminationReason.ADDRESS_DENIED, str(error), 1)
    return _end(arguments.termination_log, TerminationReason.FETCHED, message, 0)


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tailbound fetch", description="Download one model file and verify it."
    )
    parser.add_argument("--uri", required=True, help="http or https")
    parser.add_argument("--sha256", required=True, type=_digest, help="64 lower-case hex digits")
    parser.add_argument("--output", required=True, type=Path, help="the file to write")
    parser.add_argument(
        "--termination-log", type=Path, default=Path("/dev/termination-log"), help="%(default)s"
    )
    return parser.parse_args(argv)


def _digest(text: str) -> str:
    if re.fullmatch(r"[0-9a-f]{64}", text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not 64 lower-case hex digits")
    return text


def _end(log: Path, reason: TerminationReason, message: str, status: int) -> int:
    emit("ended", reason=reason, message=message)
    if log.exists():  # the kubelet made it; outside a pod it is not read
        log.write_bytes(termination_bytes(reason, message))
    return status


def termination_bytes(reason: TerminationReason, message: str) -> bytes:
    """The termination message, within the kubelet's limit: a longer message is cut, and ends in "…"."""
    body = Termination(reason=reason, message=message).model_dump_json().encode()
    while len(body) > TERMINATION_LIMIT_BYTES:
        message = message[: len(message) * 3 // 4]
        body = Termination(reason=reason, message=message + "…").model_dump_json().encode()
    return body


def _end_at_sigterm() -> None:
    """As process 1 of a container we get no default handlers: a deleted pod would wait for its grace period.

    The partial file stays for the next start. A handler in Python would come too late where the signal
    arrives just before a read begins to wait: it runs when the read is over.
    """

    def wait() -> None:
        os._exit(128 + signal.sigwait({signal.SIGTERM}))

    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    threading.Thread(target=wait, name="sigterm", daemon=True).start()
