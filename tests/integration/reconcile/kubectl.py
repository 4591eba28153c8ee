"""kubectl for tests that send one object at a time and read the answer, refusals included."""

import json
import subprocess
from collections.abc import Callable
from typing import Any

from e2e.cluster import ControlPlane, binaries


def kubectl_says(control_plane: ControlPlane) -> Callable[..., str]:
    """A function of an object and the arguments of kubectl that returns what kubectl prints."""

    def says(document: dict[str, Any], *arguments: str) -> str:
        result = subprocess.run(
            [binaries.program("kubectl"), "--kubeconfig", control_plane.kubeconfig, *arguments],
            input=json.dumps(document),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        return result.stdout + result.stderr

    return says
