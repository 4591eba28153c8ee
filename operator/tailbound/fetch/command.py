"""The command line of `tailbound fetch`: arguments and environment in; status and message out."""

import argparse
import os
import re
import signal
import threading
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Final

from tailbound.api.device_memory import ModelMemory, PodMemory, weights_read
from tailbound.api.runtime_contract import PROGRESS_PORT, FetchEnv, Resolution, Termination, TerminationReason
from tailbound.environment import Environment, SettingError, process_variables, whole_number
from tailbound.fetch.addresses import AddressPolicy
from tailbound.fetch.buckets import DEFAULT_REGION, S3Options
from tailbound.fetch.credentials import Credentials
from tailbound.fetch.dial import Proxy
from tailbound.fetch.disk import POD_DISK, disk_failure
from tailbound.fetch.download import DownloadLimits, FetchDependencies
from tailbound.fetch.failures import FetchFailedError
from tailbound.fetch.fetching import Access, FetchRequest, fetch
from tailbound.fetch.progress import emit
from tailbound.fetch.reporting import ProgressReport
from tailbound.fetch.source import shown
from tailbound.fetch.weights import weight_bytes

TERMINATION_LIMIT_BYTES: Final = 4096
_UMASK: Final = 0o002
"""Pods of other users share the volume of spec.model.cache by its group, and go on where this one ended."""


def main(argv: Sequence[str]) -> int:
    """0: the model is there, verified. 1: it is not to be had, and the message says why. 2: wrong usage."""
    _end_at_sigterm()
    os.umask(_UMASK)
    arguments = _arguments(argv)
    try:
        order = _order(arguments)
        report = ProgressReport(emit)
        world = FetchDependencies(limits=limits_from_env(process_variables()), emit=report.emit)
        _end_at_deadline(arguments.termination_log, world.limits.total_seconds)
        if arguments.report:
            report.serve(PROGRESS_PORT)
        emit("starting", uri=shown(order.uri), path=str(order.output))
        found = fetch(order, _access(arguments), world)
        # Where files were not fetched, a part of the weights would mislead.
        weights = None if found.stated else weight_bytes(order.output, order.root)
        _check_devices(weights, process_variables())
    except FetchFailedError as error:
        return _end(arguments.termination_log, error.reason, str(error), 1)
    except SettingError as error:
        return _end(arguments.termination_log, TerminationReason.ADDRESS_DENIED, str(error), 1)
    except OSError as error:
        failure = disk_failure(error, POD_DISK)
        return _end(arguments.termination_log, failure.reason, str(failure), 1)
    if order.resolve and found.sha256 is not None:
        return _resolved(arguments.termination_log, found.message, found.sha256, found.size_bytes, weights)
    return _end(arguments.termination_log, TerminationReason.FETCHED, found.message, 0)


def limits_from_env(env: Mapping[str, str]) -> DownloadLimits:
    """What bounds the whole fetch. Absent means the defaults. Raises SettingError."""
    source = Environment(env, "the operator sets it on the container that fetches")
    usual = DownloadLimits()
    seconds, most = whole_number("seconds", 10**9), whole_number("bytes", 1 << 60)
    return DownloadLimits(
        total_seconds=int(source.text(FetchEnv.TIMEOUT_SECONDS, seconds, str(usual.total_seconds))),
        total_bytes=int(source.text(FetchEnv.LIMIT_BYTES, most, str(usual.total_bytes))),
    )


def _order(arguments: argparse.Namespace) -> FetchRequest:
    return FetchRequest(
        arguments.uri,
        arguments.sha256,
        arguments.output,
        arguments.path,
        S3Options(arguments.s3_endpoint, arguments.s3_region, arguments.s3_virtual_hosts),
        resolved=arguments.resolved,
        resolve=arguments.resolve,
        files=tuple(arguments.files),
        archive=arguments.archive,
        cache=arguments.cache,
    )


def _access(arguments: argparse.Namespace) -> Access:
    """Raises FetchFailedError or SettingError."""
    env = process_variables()
    own = "" if arguments.ca is None else _certificates(arguments.ca)
    certificates = [env.get(FetchEnv.CA_CERTIFICATES, ""), own]
    return Access(
        policy=AddressPolicy.from_env(env),
        proxy=_proxy(arguments.proxy, env.get(FetchEnv.PROXY, "")),
        ca="\n".join(filter(None, certificates)) or None,
        credentials=None if arguments.credentials is None else Credentials.read(arguments.credentials),
    )


def _proxy(own: str | None, charts: str) -> Proxy | None:
    """The service's own proxy, else the chart's, else none."""
    try:
        if own is not None:
            return Proxy.parse(own, trusted=False)
        return Proxy.parse(charts, trusted=True) if charts else None
    except ValueError as error:
        raise FetchFailedError(TerminationReason.SOURCE_UNREACHABLE, str(error)) from error


def _certificates(path: Path) -> str:
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise FetchFailedError(
            TerminationReason.SOURCE_UNREACHABLE,
            f"the ConfigMap of spec.model.caRef does not exist or has no key {path.name!r}: create it",
        ) from error
    if "-----BEGIN CERTIFICATE-----" not in text:
        raise FetchFailedError(
            TerminationReason.SOURCE_UNREACHABLE,
            f"the key {path.name!r} of the ConfigMap of spec.model.caRef holds no PEM certificate",
        )
    return text


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tailbound fetch", description="Bring one model into a pod and verify it."
    )
    parser.add_argument("--uri", required=True, help="http, https, s3, gs, az, hf, pvc or oci")
    parser.add_argument("--sha256", type=_digest, help="64 lower-case hex digits")
    parser.add_argument("--report", action="store_true", help=f"answer GET at {PROGRESS_PORT} with progress")
    parser.add_argument("--resolved", action="store_true", help="the source had --sha256 before")
    parser.add_argument("--resolve", action="store_true", help="without --sha256: report the digest")
    parser.add_argument("--output", required=True, type=Path, help="where the server looks for the file")
    parser.add_argument("--path", help="end of OUTPUT: the path of the file in the source's folder")
    parser.add_argument(
        "--files", action="append", default=[], metavar="PATTERN", help="files of a folder that are fetched"
    )
    parser.add_argument("--archive", choices=["tar", "zip"], help="the file holds the folder")
    parser.add_argument("--cache", type=Path, metavar="FOLDER", help="the volume on which pods share it")
    parser.add_argument("--credentials", type=Path, metavar="FOLDER", help="where the Secret is mounted")
    parser.add_argument("--ca", type=Path, metavar="FILE", help="further certificates, PEM")
    parser.add_argument("--proxy", metavar="URL", help="http://HOST:PORT")
    parser.add_argument("--s3-endpoint", metavar="URL", help="of a store that is not AWS")
    parser.add_argument("--s3-region", default=DEFAULT_REGION, help="%(default)s")
    parser.add_argument("--s3-virtual-hosts", action="store_true", help="the bucket is part of the host")
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


def _check_devices(weights: int | None, env: Mapping[str, str]) -> None:
    """Raises FetchFailedError if the devices of the pod do not hold the weights: no server loads them."""
    text = env.get(FetchEnv.DEVICE_MEMORY, "")
    if not text or weights is None:
        return
    pod = PodMemory.read(text)
    lack = pod.lack(ModelMemory(Decimal(weights), weights_read(weights), pod.activations))
    if lack is not None:
        raise FetchFailedError(TerminationReason.MODEL_TOO_LARGE, f"the model has {lack}")


def _resolved(log: Path, message: str, sha256: str, size_bytes: int, weights: int | None) -> int:
    emit("ended", reason=TerminationReason.FETCHED, message=message, sha256=sha256, bytes=size_bytes)
    if log.exists():
        # The whole digest must arrive: only the message may be cut.
        said = Resolution(
            reason=TerminationReason.FETCHED,
            message=message[:1000],
            sha256=sha256,
            size_bytes=size_bytes,
            weight_bytes=weights,
        )
        log.write_bytes(said.written().encode())
    return 0


def termination_bytes(reason: TerminationReason, message: str) -> bytes:
    """The termination message, within the kubelet's limit: a longer message is cut, and ends in "…"."""
    body = Termination(reason=reason, message=message).written().encode()
    while len(body) > TERMINATION_LIMIT_BYTES:
        message = message[: len(message) * 3 // 4]
        body = Termination(reason=reason, message=message + "…").written().encode()
    return body


def _end_at_deadline(log: Path, seconds: int) -> None:
    """Ends the process after `seconds`, whatever it waits for. The partial file stays for the next start."""

    def end() -> None:
        message = (
            f"the model was not here and verified within {seconds} s, which fetch.timeoutSeconds of the "
            "chart sets. The next start of the container goes on from here if the source can"
        )
        os._exit(_end(log, TerminationReason.SOURCE_UNREACHABLE, message, 1))

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()


def _end_at_sigterm() -> None:
    """Ends the process at SIGTERM: process 1 of a container has no default handler for it.

    The partial file stays for the next start. A handler in Python would come too late where the signal
    arrives just before a read begins to wait: it runs when the read is over.
    """

    def wait() -> None:
        os._exit(128 + signal.sigwait({signal.SIGTERM}))

    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    threading.Thread(target=wait, name="sigterm", daemon=True).start()
