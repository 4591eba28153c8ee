"""etcd and kube-apiserver, and on request kube-controller-manager: a Kubernetes API without nodes."""

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from e2e.cluster import binaries
from e2e.cluster.pki import Pki
from e2e.cluster.ports import free_ports
from e2e.cluster.processes import Children, Supervisor, output, wait_for

SERVICE_RANGE = "10.96.0.0/16"
POD_RANGE = "10.244.0.0/16"
START_TIMEOUT_SECONDS = 240
TOKEN_LIFETIME = "24h"
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "Metadata", "verbs": ["create", "update", "patch", "delete", "deletecollection"]},
        # What our own ServiceAccounts read is recorded too: the role-based rules are proved minimal by it.
        {"level": "Metadata", "userGroups": ["system:serviceaccounts:tailbound-system"]},
        {"level": "None"},
    ],
}


@dataclass(frozen=True)
class Endpoint:
    """The addresses of the daemons. `advertise` is the one at which pods reach the API server, if any do."""

    host: str
    port: int
    etcd_port: int
    etcd_peer_port: int
    controller_manager_port: int
    scheduler_port: int
    advertise: str | None = None

    @classmethod
    def free_loopback(cls) -> "Endpoint":
        port, etcd, peer, controller_manager, scheduler = free_ports(5)
        return cls("127.0.0.1", port, etcd, peer, controller_manager, scheduler)

    @property
    def server(self) -> str:
        return f"https://{self.host}:{self.port}"

    @property
    def etcd(self) -> str:
        return f"http://127.0.0.1:{self.etcd_port}"


@dataclass
class ControlPlane:
    """A running Kubernetes API. Make one with `start`; it is also a context manager that stops it."""

    directory: Path
    endpoint: Endpoint
    pki: Pki
    processes: Supervisor
    controller_manager: bool = False
    scheduler: bool = False
    admission_plugins: tuple[str, ...] = ("NodeRestriction",)
    """Those beside the plugins that are on by default."""

    @classmethod
    def start(
        cls, directory: Path, *, controller_manager: bool = False, admission_plugins: tuple[str, ...] = ()
    ) -> "ControlPlane":
        """Start etcd and kube-apiserver on free loopback ports, with their state in `directory`; await them.

        Needs no root. The daemons die with the thread that called this. Raises ProcessError if one fails.
        """
        directory = directory.absolute()
        control_plane = cls(
            directory=directory,
            endpoint=Endpoint.free_loopback(),
            pki=Pki.create(directory / "pki"),
            processes=Children(directory / "logs"),
            controller_manager=controller_manager,
            admission_plugins=("NodeRestriction", *admission_plugins),
        )
        try:
            control_plane.launch()
        except BaseException:
            control_plane.stop()
            raise
        return control_plane

    @property
    def kubeconfig(self) -> Path:
        """The cluster administrator's kubeconfig."""
        return self.directory / "admin.kubeconfig"

    @property
    def audit_log(self) -> Path:
        """One audit.k8s.io/v1 Event a line: every write, and the reads of our own ServiceAccounts."""
        return self.directory / "logs" / "audit.log"

    @property
    def server(self) -> str:
        return self.endpoint.server

    def launch(self) -> None:
        """Write keys and configuration and start the daemons; returns when the API server is ready."""
        self._write_files()
        self._start_etcd()
        self.start_apiserver()
        if self.controller_manager:
            self._start_controller_manager()
        if self.scheduler:
            self._start_scheduler()

    def stop(self) -> None:
        """Stop everything that was started. What it wrote stays in `directory`."""
        for name in ("kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd"):
            self.processes.stop(name)

    def start_apiserver(self) -> None:
        """Start kube-apiserver and wait until it is ready."""
        self.processes.start("kube-apiserver", [binaries.program("kube-apiserver"), *self._apiserver_flags()])
        self._wait("kube-apiserver", self._ready)

    def stop_apiserver(self) -> None:
        """End kube-apiserver at once, as an outage would; etcd keeps the state for the next start."""
        self.processes.kill("kube-apiserver")

    def kubectl(self, *arguments: str, input: str | None = None) -> str:  # noqa: A002 - as in subprocess
        """Run kubectl as the administrator and return its output. Raises ProcessError with its errors."""
        return output([binaries.program("kubectl"), "--kubeconfig", self.kubeconfig, *arguments], input=input)

    def kubeconfig_for(self, user: str, group: str | None = None) -> Path:
        """A kubeconfig that authenticates as `user`, in `group` if given. It grants nothing by itself."""
        name = "user-" + "-".join([user, *([group] if group else [])]).replace(":", "-").replace("/", "-")
        groups = {} if group is None else {"group": group}
        return self.pki.client_kubeconfig(name, self.server, user=user, **groups)

    def kubeconfig_for_service_account(self, namespace: str, name: str) -> Path:
        """A kubeconfig with a token of an existing ServiceAccount, valid for a day."""
        token = self.kubectl("create", "token", name, "-n", namespace, f"--duration={TOKEN_LIFETIME}")
        return self.pki.token_kubeconfig(f"serviceaccount-{namespace}-{name}", self.server, token.strip())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _write_files(self) -> None:
        hosts = {"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
        hosts |= {"127.0.0.1", self.endpoint.host, "10.96.0.1"}
        self.pki.issue("apiserver", user="kube-apiserver", hosts=sorted(hosts))
        self.pki.issue("front-proxy", user="front-proxy")
        self.pki.client_kubeconfig("admin", self.server, user="admin", group="system:masters")
        self.pki.issue("kubelet-client", user="kube-apiserver", group="system:masters")
        (self.directory / "audit-policy.json").write_text(json.dumps(AUDIT_POLICY))

    def _start_etcd(self) -> None:
        peer = f"http://127.0.0.1:{self.endpoint.etcd_peer_port}"
        self.processes.start(
            "etcd",
            [
                binaries.program("etcd"),
                f"--data-dir={self.directory / 'etcd'}",
                "--unsafe-no-fsync",
                f"--listen-client-urls={self.endpoint.etcd}",
                f"--advertise-client-urls={self.endpoint.etcd}",
                f"--listen-peer-urls={peer}",
                f"--initial-advertise-peer-urls={peer}",
                f"--initial-cluster=default={peer}",
                "--log-level=warn",
            ],
        )

    def _apiserver_flags(self) -> list[str]:
        pki = self.pki
        # Without the controller manager nobody makes the default ServiceAccount that this admission wants.
        admission = [] if self.controller_manager else ["--disable-admission-plugins=ServiceAccount"]
        reachable = (
            ["--endpoint-reconciler-type=none"]
            if self.endpoint.advertise is None
            else [f"--advertise-address={self.endpoint.advertise}"]
        )
        return [
            f"--etcd-servers={self.endpoint.etcd}",
            f"--service-cluster-ip-range={SERVICE_RANGE}",
            f"--bind-address={self.endpoint.host}",
            f"--secure-port={self.endpoint.port}",
            *reachable,
            f"--tls-cert-file={pki.certificate('apiserver')}",
            f"--tls-private-key-file={pki.key('apiserver')}",
            f"--client-ca-file={pki.ca}",
            "--authorization-mode=Node,RBAC",
            f"--enable-admission-plugins={','.join(self.admission_plugins)}",
            *admission,
            "--allow-privileged=true",
            f"--service-account-key-file={pki.folder / 'sa.pub'}",
            f"--service-account-signing-key-file={pki.folder / 'sa.key'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--kubelet-client-certificate={pki.certificate('kubelet-client')}",
            f"--kubelet-client-key={pki.key('kubelet-client')}",
            f"--kubelet-certificate-authority={pki.ca}",
            # The node's name is in no DNS.
            "--kubelet-preferred-address-types=InternalIP",
            *self._aggregation_flags(),
            f"--audit-policy-file={self.directory / 'audit-policy.json'}",
            f"--audit-log-path={self.audit_log}",
            "--audit-log-maxsize=4096",
        ]

    def _aggregation_flags(self) -> list[str]:
        """What lets other servers answer for API groups."""
        pki = self.pki
        return [
            f"--requestheader-client-ca-file={pki.ca}",
            "--requestheader-allowed-names=front-proxy",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-username-headers=X-Remote-User",
            f"--proxy-client-cert-file={pki.certificate('front-proxy')}",
            f"--proxy-client-key-file={pki.key('front-proxy')}",
            "--enable-aggregator-routing=true",
        ]

    def _start_controller_manager(self) -> None:
        pki = self.pki
        self._start_controller(
            "kube-controller-manager",
            self.endpoint.controller_manager_port,
            "--use-service-account-credentials",
            f"--service-account-private-key-file={pki.folder / 'sa.key'}",
            f"--root-ca-file={pki.ca}",
            f"--cluster-signing-cert-file={pki.ca}",
            f"--cluster-signing-key-file={pki.key('ca')}",
            f"--cluster-cidr={POD_RANGE}",
            f"--service-cluster-ip-range={SERVICE_RANGE}",
            "--horizontal-pod-autoscaler-sync-period=5s",
        )

    def _start_scheduler(self) -> None:
        self._start_controller("kube-scheduler", self.endpoint.scheduler_port)

    def _start_controller(self, name: str, port: int, *flags: str) -> None:
        kubeconfig = self.pki.client_kubeconfig(name, self.server, user=f"system:{name}")
        self.processes.start(
            name,
            [
                binaries.program(name),
                f"--kubeconfig={kubeconfig}",
                f"--authentication-kubeconfig={kubeconfig}",
                f"--authorization-kubeconfig={kubeconfig}",
                "--bind-address=127.0.0.1",
                f"--secure-port={port}",
                "--leader-elect=false",
                "--kube-api-qps=200",
                "--kube-api-burst=400",
                *flags,
            ],
        )

    def _ready(self) -> bool:
        context = ssl.create_default_context(cafile=str(self.pki.ca))
        context.load_cert_chain(self.pki.certificate("kubelet-client"), self.pki.key("kubelet-client"))
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        try:
            with opener.open(f"{self.server}/readyz", timeout=5) as response:
                return bool(response.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def _wait(self, name: str, ready: Callable[[], bool]) -> None:
        def check() -> bool:
            self.processes.check("etcd")
            self.processes.check(name)
            return ready()

        wait_for(f"{name} ready", check, START_TIMEOUT_SECONDS)
