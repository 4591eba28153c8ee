"""Our own one-node cluster: bringing it up, taking it down, and what tests may do to its node."""

import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from e2e.cluster import addons, binaries, network, node, teardown
from e2e.cluster.binaries import file_lock
from e2e.cluster.building import build
from e2e.cluster.cluster import Cluster
from e2e.cluster.controlplane import ControlPlane, Endpoint
from e2e.cluster.daemons import Daemons
from e2e.cluster.images import node_images, project_images
from e2e.cluster.layout import NODE_NAME, Layout
from e2e.cluster.node import Node
from e2e.cluster.pki import Pki
from e2e.cluster.processes import ProcessError, wait_for

MODULES = ("kubernetes", "containerd", "coredns")
DAEMONS = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "containerd",
    "kubelet",
    "kube-proxy",
)
NODE_TIMEOUT_SECONDS = 300


class OwnCluster(Cluster):
    """The cluster that `layout` names, up or not."""

    owns_node = True

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout.state / "admin.kubeconfig")
        self.layout = layout
        pki = Pki(layout.state / "pki")
        self._daemons = Daemons(layout, node.search_path())
        self._control_plane = ControlPlane(
            directory=layout.state,
            endpoint=Endpoint(
                host=layout.node_address,
                port=6443,
                etcd_port=2379,
                etcd_peer_port=2380,
                controller_manager_port=10257,
                scheduler_port=10259,
                advertise=layout.node_address,
            ),
            pki=pki,
            processes=self._daemons,
            controller_manager=True,
            scheduler=True,
        )
        self._node = Node(layout, pki, self._control_plane.server, self._daemons)

    @property
    def audit_log(self) -> Path:
        """One audit.k8s.io/v1 Event a line: every write, and the reads of tailbound-system."""
        return self._control_plane.audit_log

    def up(self) -> None:
        """Bring the cluster up, unless it is up and healthy. Remains of an earlier one are removed first.

        What a failed attempt leaves is removed again, save its logs. Raises ProcessError or BuildError.
        """
        node.require_host_programs()
        archives = [build(image) for image in node_images()]
        with file_lock(self.layout.lock):
            if not self.faults():
                return
            teardown.tear_down(self.layout)
            try:
                self._create(archives)
            except BaseException:
                self._keep_logs()
                teardown.tear_down(self.layout)
                raise

    def down(self) -> None:
        """Remove the cluster and all that it left on this machine. Nothing happens if there is nothing."""
        with file_lock(self.layout.lock):
            teardown.tear_down(self.layout)

    def faults(self) -> list[str]:
        """What keeps the cluster from being up and healthy, in words; empty if nothing does."""
        if not self.kubeconfig.exists():
            return ["the cluster is not up"]
        if self._built_from.read_text() != _content():
            return ["the cluster runs other binaries than the present ones"]
        faults = [f"{name} does not run" for name in DAEMONS if not self._daemons.runs(name)]
        if not faults and not self._node_ready():
            faults.append(f"node {NODE_NAME} is not Ready")
        if not faults and addons.fake_gpus(self.kubectl) != str(addons.GPU_COUNT):
            faults.append(f"node {NODE_NAME} offers no GPUs")
        return faults

    def load_images(self) -> None:
        """Build the project's images and load those whose content was not the last to be loaded."""
        loaded = self.image_contents()
        for image in project_images():
            archive = build(image)
            if loaded.get(image.name) != archive.name:
                self.load_archives([archive])
                loaded[image.name] = archive.name
                self._image_record.write_text(json.dumps(loaded))

    def image_contents(self) -> dict[str, str]:
        """A name for the content of each image of the project that is loaded, by the image's name."""
        record = self._image_record
        contents: dict[str, str] = json.loads(record.read_text()) if record.exists() else {}
        return contents

    @property
    def _image_record(self) -> Path:
        return self.layout.state / "image-contents.json"

    def load_archives(self, archives: Iterable[Path]) -> None:
        """Load image archives into the node's container runtime."""
        for archive in archives:
            self._node.import_image(archive)

    def tag_image(self, reference: str, other: str) -> None:
        """Give a loaded image a further name: what a new release of the same content looks like."""
        self._node.ctr("images", "tag", "--force", reference, other)

    def in_node_network(self, *command: str) -> list[str]:
        """The command line that runs `command` here but in the node's network, where pods can be reached."""
        return [*self.layout.enter, *command]

    def stop_apiserver(self) -> None:
        """End the API server at once, as an outage would."""
        self._control_plane.stop_apiserver()

    def start_apiserver(self) -> None:
        """Start the API server and wait until it is ready."""
        self._control_plane.start_apiserver()

    def restart_kubelet(self) -> None:
        """Restart the kubelet; returns when it has reported anew and the fake GPUs are in place again."""
        before = self._heartbeat()
        self._node.restart_kubelet()
        # When it registers, it may zero devices that it does not know; nothing takes them away after that.
        self._await_kubelet("a report of the new kubelet", lambda: self._heartbeat() != before)
        addons.set_fake_gpus(self.kubectl)

    def start_device_driver(self, name: str, devices: int) -> None:
        """Run a driver of dynamic resource allocation; its devices come with a ResourceSlice."""
        self._node.start_device_driver(name, devices)

    def stop_device_driver(self) -> None:
        """End the driver, if it runs. Its ResourceSlice stays: the caller deletes it."""
        self._node.stop_device_driver()

    @property
    def _built_from(self) -> Path:
        return self.layout.state / "built-from"

    def _create(self, archives: Iterable[Path]) -> None:
        self.layout.state.mkdir(parents=True)
        self._built_from.write_text(_content())
        Pki.create(self.layout.state / "pki")
        self._daemons.group.create()
        network.create(self.layout)
        self._node.start_runtime()
        self.load_archives(archives)
        self._control_plane.launch()
        self._node.start_kubelet()
        self._node.start_proxy()
        addons.install_dns(self.kubectl)
        self._await_kubelet("node Ready", self._node_ready)
        addons.set_fake_gpus(self.kubectl)
        self.kubectl("rollout", "status", "deployment/coredns", "-n", "kube-system", "--timeout=240s")

    def _await_kubelet(self, what: str, ready: Callable[[], bool]) -> None:
        def check() -> bool:
            self._daemons.check("kubelet")
            return ready()

        wait_for(what, check, NODE_TIMEOUT_SECONDS)

    def _heartbeat(self) -> str:
        path = "jsonpath={.status.conditions[?(@.type=='Ready')].lastHeartbeatTime}"
        return self.kubectl("get", "node", NODE_NAME, "-o", path, timeout_seconds=10)

    def _node_ready(self) -> bool:
        path = "jsonpath={.status.conditions[?(@.type=='Ready')].status}"
        try:
            return self.kubectl("get", "node", NODE_NAME, "-o", path, timeout_seconds=10) == "True"
        except ProcessError:  # not registered yet, or the API server is away
            return False

    def _keep_logs(self) -> None:
        if self.layout.logs.exists():
            kept = self.layout.state.with_name(f"{self.layout.name}-failed-logs")
            shutil.copytree(self.layout.logs, kept, dirs_exist_ok=True)


def _content() -> str:
    return "\n".join(str(binaries.ensure(module)) for module in MODULES)
