"""The cluster that tests and demo use: our own one-node cluster, or the one that KUBECONFIG names."""

import os
from pathlib import Path

from e2e.cluster import binaries
from e2e.cluster.layout import DEFAULT_NAME, Layout
from e2e.cluster.processes import ProcessError, output


class Cluster:
    """A cluster that is there: what every scenario may use, whoever owns it."""

    owns_node = False
    """Whether the node's host is this machine and ours to disturb: then this is an OwnCluster."""

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig

    @staticmethod
    def current(name: str = DEFAULT_NAME) -> "Cluster":
        """The cluster of KUBECONFIG if that is set, else our own, which must be up.

        Raises ProcessError naming the remedy if there is none.
        """
        named = os.environ.get("KUBECONFIG")
        if named:
            return Cluster(Path(named).absolute())
        # Here, because that module builds on this one.
        from e2e.cluster.own import OwnCluster

        own = OwnCluster(Layout(name))
        if not own.kubeconfig.exists():
            raise ProcessError(f"cluster {name} is not up: run `make cluster-up`, or set KUBECONFIG")
        return own

    def kubectl(
        self,
        *arguments: str,
        input: str | None = None,  # noqa: A002 - as in subprocess
        timeout_seconds: float = 300,
    ) -> str:
        """Run kubectl as the administrator and return its output. Raises ProcessError with its errors."""
        return output(
            [binaries.program("kubectl"), "--kubeconfig", self.kubeconfig, *arguments],
            input=input,
            timeout_seconds=timeout_seconds,
        )
