"""A real Kubernetes for the tests and the demo, built from source through package registries.

Two forms:

`ControlPlane` (controlplane.py)
    etcd and kube-apiserver on free loopback ports. No root, about five seconds, many side by side.
    The integration tests run on it. There is no kubelet: pods stay Pending.

        with ControlPlane.start(directory) as control_plane:
            control_plane.kubeconfig          # cluster admin
            control_plane.audit_log           # one JSON object a line, every write with its user
            control_plane.kubectl("get", "namespaces")
            control_plane.kubeconfig_for("alice", groups=["team-a"])
            control_plane.kubeconfig_for_service_account("tailbound-system", "tailbound-operator")
            control_plane.stop_apiserver(), control_plane.start_apiserver()     # an outage

    `controller_manager=True` adds kube-controller-manager: garbage collection, Deployments, namespace
    deletion and default ServiceAccounts. Without it the admission of ServiceAccounts is off, and a deleted
    namespace stays Terminating.

`Cluster` (cluster.py, own.py)
    Real pods. `Cluster.current()` is our own one-node cluster, which must be up (`make cluster-up`), or the
    one that KUBECONFIG names. Both have

        cluster.kubeconfig
        cluster.kubectl("apply", "-f", "-", input=text)
        cluster.owns_node                 # False with KUBECONFIG set; True narrows to OwnCluster, which adds:

        cluster.audit_log                 # as above; also what ServiceAccounts of tailbound-system read
        cluster.load_images()             # build the project's images, load those that changed
        cluster.in_node_network("curl", url)  # a command line; pods are reachable in there
        cluster.stop_apiserver(), cluster.start_apiserver()          # an outage
        cluster.restart_kubelet()         # the fake GPUs are back when it returns

    The node is `node0`, with nvidia.com/gpu: 4 and labels (addons.py). layout.py names its kernel objects.
    Cluster DNS answers for services; every other name is NXDOMAIN, and nothing outside can be reached.

Images (images.py): localhost/tailbound:e2e, localhost/tailbound-runtime:e2e, and localhost/tailbound-NAME:e2e
for each folder NAME of e2e/images, with dashes. Pull policy Never or IfNotPresent.

On the command line: `python -m e2e.cluster --help`.
"""

from e2e.cluster.cluster import Cluster
from e2e.cluster.controlplane import ControlPlane
from e2e.cluster.images import OPERATOR_IMAGE, RUNTIME_IMAGE
from e2e.cluster.own import OwnCluster

__all__ = ["OPERATOR_IMAGE", "RUNTIME_IMAGE", "Cluster", "ControlPlane", "OwnCluster"]
