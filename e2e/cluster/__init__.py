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
"""

from e2e.cluster.controlplane import ControlPlane

__all__ = ["ControlPlane"]
