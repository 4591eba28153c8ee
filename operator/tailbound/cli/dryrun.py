"""What `kubectl apply` would make of a file: asked of kubectl and the API server, without doing it."""

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from tailbound.api.names import GROUP
from tailbound.cli.subject import CommandError

_KIND: Final = "InferenceService"
_SECONDS: Final = 60


def applied(file: str, options: Sequence[str]) -> tuple[Mapping[str, Any], ...]:
    """The services of a file as they would be stored; `options` are kubectl's own.

    Raises CommandError with what kubectl says if it or the API server refuses, or if there is no service.
    """
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        raise CommandError("kubectl is not on PATH: a plan asks it what it would apply")
    command = [kubectl, "apply", "--dry-run=server", "--output=json", f"--filename={file}", *options]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise CommandError(f"kubectl does not answer within {_SECONDS}s") from error
    if result.returncode != 0:
        raise CommandError(result.stderr.strip().removeprefix("error: "))
    services = tuple(_services(json.loads(result.stdout)))
    if not services:
        raise CommandError(f"{file} holds no {_KIND}: there is nothing to plan")
    return services


def _services(found: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for item in found["items"] if found["kind"] == "List" else [found]:
        if item["kind"] == _KIND and item["apiVersion"].startswith(f"{GROUP}/"):
            yield item
