"""The node: containerd, the kubelet and kube-proxy."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster import binaries
from e2e.cluster.controlplane import POD_RANGE
from e2e.cluster.daemons import Daemons
from e2e.cluster.layout import NODE_NAME, Layout
from e2e.cluster.pki import Pki
from e2e.cluster.processes import ProcessError, output, wait_for

DEVICE_DRIVER = "dra-test-driver"
PAUSE_IMAGE = "localhost/pause:1"
DNS_ADDRESS = "10.96.0.10"
CLUSTER_DOMAIN = "cluster.local"
CNI_PLUGINS = Path("/usr/lib/cni")
START_TIMEOUT_SECONDS = 180
IMPORT_TIMEOUT_SECONDS = 600


@dataclass(frozen=True)
class Node:
    """The one node of a cluster; its daemons run in the cluster's network namespace."""

    layout: Layout
    pki: Pki
    server: str
    daemons: Daemons

    def start_runtime(self) -> None:
        """Start containerd; returns when it answers."""
        self._write_network()
        config = self.layout.state / "containerd.toml"
        config.write_text(self._containerd_config())
        self.daemons.start("containerd", [binaries.program("containerd"), "--config", config])
        self._wait("containerd", self.layout.containerd_socket.exists)

    def start_kubelet(self) -> None:
        """Start the kubelet; it registers the node by itself."""
        self.pki.issue("kubelet-server", user="kubelet", hosts=[NODE_NAME, self.layout.node_address])
        kubeconfig = self.pki.client_kubeconfig(
            "kubelet", self.server, user=f"system:node:{NODE_NAME}", group="system:nodes"
        )
        config = self.layout.state / "kubelet.json"
        config.write_text(json.dumps(self._kubelet_config(), indent=2))
        self.daemons.start(
            "kubelet",
            [
                binaries.program("kubelet"),
                f"--config={config}",
                f"--kubeconfig={kubeconfig}",
                f"--hostname-override={NODE_NAME}",
                f"--node-ip={self.layout.node_address}",
                f"--root-dir={self.layout.state / 'kubelet'}",
            ],
        )

    def start_proxy(self) -> None:
        """Start kube-proxy, which makes ClusterIPs work."""
        kubeconfig = self.pki.client_kubeconfig("kube-proxy", self.server, user="system:kube-proxy")
        config = self.layout.state / "kube-proxy.json"
        document = {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "nftables",
            "clientConnection": {"kubeconfig": str(kubeconfig)},
            "clusterCIDR": POD_RANGE,
            "hostnameOverride": NODE_NAME,
            "conntrack": {"maxPerCore": 0, "min": 0},
        }
        config.write_text(json.dumps(document, indent=2))
        self.daemons.start("kube-proxy", [binaries.program("kube-proxy"), f"--config={config}"])

    def restart_kubelet(self) -> None:
        """End the kubelet and start it anew. Pods keep running; fake device capacity is lost (addons.py)."""
        self.daemons.stop("kubelet")
        self.start_kubelet()

    def start_device_driver(self, name: str, devices: int) -> None:
        """Run a driver of dynamic resource allocation that offers so many devices, which are not there."""
        plugins = self.layout.state / "kubelet/plugins"
        (plugins / name).mkdir(parents=True, exist_ok=True)
        kubeconfig = self.pki.client_kubeconfig(
            DEVICE_DRIVER, self.server, user=DEVICE_DRIVER, group="system:masters"
        )
        self.daemons.start(
            DEVICE_DRIVER,
            [
                binaries.program(DEVICE_DRIVER),
                "kubelet-plugin",
                f"--kubeconfig={kubeconfig}",
                f"--drivername={name}",
                f"--node-name={NODE_NAME}",
                f"--num-devices={devices}",
                f"--cdi-dir={self._devices}",
                f"--plugin-registration-path={self.layout.state / 'kubelet/plugins_registry'}",
                f"--datadir={plugins}",
            ],
        )

    def stop_device_driver(self) -> None:
        """End the driver; containers keep their devices."""
        self.daemons.stop(DEVICE_DRIVER)

    def import_image(self, archive: Path) -> None:
        """Load an image archive into containerd."""
        self.ctr("images", "import", str(archive.absolute()), timeout_seconds=IMPORT_TIMEOUT_SECONDS)

    def ctr(self, *arguments: str, timeout_seconds: float = 60) -> str:
        """Run containerd's own client on the node's images and containers."""
        return output(
            [binaries.program("ctr"), "-a", self.layout.containerd_socket, "-n", "k8s.io", *arguments],
            timeout_seconds=timeout_seconds,
        )

    @property
    def _devices(self) -> Path:
        return self.layout.state / "cdi"

    def _wait(self, name: str, ready: Callable[[], bool]) -> None:
        def check() -> bool:
            self.daemons.check(name)
            return ready()

        wait_for(f"{name} ready", check, START_TIMEOUT_SECONDS)

    def _write_network(self) -> None:
        # Point to point, not a bridge: between pods on one bridge the answers of a ClusterIP would take the
        # direct way and miss the translation back.
        document = {
            "cniVersion": "1.0.0",
            "name": self.layout.pod_network,
            "plugins": [
                {
                    "type": "ptp",
                    "ipMasq": False,
                    "ipam": {
                        "type": "host-local",
                        "dataDir": str(self.layout.state / "cni-addresses"),
                        "ranges": [[{"subnet": POD_RANGE}]],
                        "routes": [{"dst": "0.0.0.0/0"}],
                    },
                }
            ],
        }
        folder = self.layout.state / "cni"
        folder.mkdir(exist_ok=True)
        (folder / "10-pods.conflist").write_text(json.dumps(document, indent=2))

    def _containerd_config(self) -> str:
        state = self.layout.state / "containerd"
        return f"""\
version = 3
root = "{state}/root"
state = "{state}/state"

[grpc]
  address = "{self.layout.containerd_socket}"

[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = "{PAUSE_IMAGE}"

[plugins.'io.containerd.cri.v1.runtime']
  # Not everybody may lower a score, and a container in a container may not.
  restrict_oom_score_adj = true
  # Below our own folder, so that teardown finds what a killed containerd left mounted.
  netns_mounts_under_state_dir = true
  # Where a driver of dynamic resource allocation says what a container gets with a device.
  cdi_spec_dirs = ["{self._devices}"]
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      SystemdCgroup = false
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["{CNI_PLUGINS}"]
    conf_dir = "{self.layout.state}/cni"
"""

    def _kubelet_config(self) -> dict[str, object]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "x509": {"clientCAFile": str(self.pki.ca)},
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
            },
            "authorization": {"mode": "Webhook"},
            "address": self.layout.node_address,
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self.layout.control_group}",
            # Debian 12 boots version 2; this keeps version 1 possible.
            "failCgroupV1": False,
            "failSwapOn": False,
            "containerRuntimeEndpoint": f"unix://{self.layout.containerd_socket}",
            "clusterDomain": CLUSTER_DOMAIN,
            "clusterDNS": [DNS_ADDRESS],
            "resolvConf": "/dev/null",
            "tlsCertFile": str(self.pki.certificate("kubelet-server")),
            "tlsPrivateKeyFile": str(self.pki.key("kubelet-server")),
            "podLogsDir": str(self.layout.state / "pod-logs"),
            "maxPods": 400,
            # Many pods share few CPUs here. Shares follow the requests, but nobody is throttled beside an
            # idle CPU: a pod that asks for little would take half a minute to start.
            "cpuCFSQuota": False,
            # A pod that writes more to its disk than it may is evicted seconds later, not after a minute.
            "volumeStatsAggPeriod": "5s",
            # The disk and the memory are the host's; only a real shortage may evict.
            "evictionHard": {
                "memory.available": "100Mi",
                "nodefs.available": "1%",
                "imagefs.available": "1%",
            },
            "imageGCHighThresholdPercent": 100,
            "oomScoreAdj": 0,
        }


def search_path() -> str:
    """PATH for the daemons: containerd looks its shim up there, and runc and nft are in sbin folders."""
    folders = [str(binaries.ensure("containerd")), os.environ.get("PATH", ""), "/usr/sbin", "/sbin"]
    return ":".join(folder for folder in folders if folder)


def require_host_programs() -> None:
    """Raise ProcessError if this machine lacks a program that the node runs."""
    packages = {
        "runc": "runc",
        "ip": "iproute2",
        "nft": "nftables",
        "nsenter": "util-linux",
        "sysctl": "procps",
        "mount": "mount",
    }
    missing = [
        package
        for program, package in packages.items()
        if shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") is None
    ]
    if not (CNI_PLUGINS / "ptp").exists():
        missing.append("containernetworking-plugins")
    if missing:
        raise ProcessError(f"packages missing: apt-get install {' '.join(missing)}")
    if os.geteuid() != 0:
        raise ProcessError("a node needs root: network namespaces, mounts and control groups; use sudo")
