"""The smallest pod spec that passes the restricted check."""

from typing import Any


def restricted_pod(**server: Any) -> dict[str, Any]:
    """A pod spec with one container, whose fields are these besides what the check asks for."""
    security = {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    return {
        "automountServiceAccountToken": False,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{"name": "server", "securityContext": security, **server}],
    }
