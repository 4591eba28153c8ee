"""What the cluster carries beside the node: DNS for pods, and devices that are not there."""

import json
from collections.abc import Callable

from e2e.cluster.layout import NODE_NAME
from e2e.cluster.node import CLUSTER_DOMAIN, DNS_ADDRESS

DNS_IMAGE = "localhost/coredns:1"
DNS_PORT = 1053
GPU_RESOURCE = "nvidia.com/gpu"
GPU_COUNT = 4
GPU_LABELS = {
    "nvidia.com/gpu.present": "true",
    "nvidia.com/gpu.count": str(GPU_COUNT),
    "nvidia.com/gpu.product": "Tailbound-Fake-GPU",
    "nvidia.com/gpu.memory": "16384",
}
# Nothing outside the cluster can be reached, so other names are answered at once: they do not exist. That
# takes a server block of its own: in one block `template` comes before `kubernetes`, and hides the services.
COREFILE = f"""\
{CLUSTER_DOMAIN}:{DNS_PORT} in-addr.arpa:{DNS_PORT} ip6.arpa:{DNS_PORT} {{
    errors
    ready
    kubernetes {CLUSTER_DOMAIN} in-addr.arpa ip6.arpa {{
        ttl 5
    }}
}}
.:{DNS_PORT} {{
    errors
    template ANY ANY . {{
        rcode NXDOMAIN
    }}
}}
"""

Kubectl = Callable[..., str]


def install_dns(kubectl: Kubectl) -> None:
    """Run CoreDNS as a pod behind the address that every pod has as its name server. Does not wait for it."""
    objects = [
        *_dns_account(),
        _object("v1", "ConfigMap", "coredns", data={"Corefile": COREFILE}),
        _object("apps/v1", "Deployment", "coredns", spec=_dns_deployment()),
        _object("v1", "Service", "kube-dns", spec=_dns_service()),
    ]
    document = {"apiVersion": "v1", "kind": "List", "items": objects}
    kubectl("apply", "--server-side", "-f", "-", input=json.dumps(document))


def _dns_account() -> list[dict[str, object]]:
    """The ServiceAccount of CoreDNS and its permissions."""
    group, verbs = "rbac.authorization.k8s.io", ["list", "watch"]
    rules = [
        {"apiGroups": [""], "resources": ["services", "namespaces", "pods"], "verbs": verbs},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": verbs},
    ]
    role = {"apiGroup": group, "kind": "ClusterRole", "name": "coredns"}
    account = {"kind": "ServiceAccount", "name": "coredns", "namespace": "kube-system"}
    return [
        _object("v1", "ServiceAccount", "coredns"),
        _object(f"{group}/v1", "ClusterRole", "coredns", rules=rules),
        _object(f"{group}/v1", "ClusterRoleBinding", "coredns", roleRef=role, subjects=[account]),
    ]


def _dns_service() -> dict[str, object]:
    return {
        "clusterIP": DNS_ADDRESS,
        "selector": {"app": "coredns"},
        "ports": [
            {"name": "dns", "port": 53, "targetPort": DNS_PORT, "protocol": "UDP"},
            {"name": "dns-tcp", "port": 53, "targetPort": DNS_PORT, "protocol": "TCP"},
        ],
    }


def set_fake_gpus(kubectl: Kubectl) -> None:
    """Give the node its fake GPUs. The kubelet zeroes them whenever it starts: call this after each start."""
    devices = {GPU_RESOURCE: str(GPU_COUNT)}
    status = {"status": {"capacity": devices, "allocatable": devices}}
    kubectl(
        "patch", "node", NODE_NAME, "--type=merge", "-p", json.dumps({"metadata": {"labels": GPU_LABELS}})
    )
    kubectl("patch", "node", NODE_NAME, "--subresource=status", "--type=merge", "-p", json.dumps(status))


def fake_gpus(kubectl: Kubectl) -> str:
    """How many GPUs the node offers at this moment; empty if it names none."""
    path = "jsonpath={.status.allocatable." + GPU_RESOURCE.replace(".", r"\.") + "}"
    return kubectl("get", "node", NODE_NAME, "-o", path)


def _object(api_version: str, kind: str, name: str, **fields: object) -> dict[str, object]:
    metadata = {"name": name, "namespace": "kube-system"}
    if kind.startswith("Cluster"):
        del metadata["namespace"]
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


def _dns_deployment() -> dict[str, object]:
    container = {
        "name": "coredns",
        "image": DNS_IMAGE,
        "imagePullPolicy": "Never",
        "args": ["-conf", "/etc/coredns/Corefile"],
        "ports": [{"containerPort": DNS_PORT, "protocol": protocol} for protocol in ("UDP", "TCP")],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 1},
        "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns", "readOnly": True}],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    return {
        "replicas": 1,
        "selector": {"matchLabels": {"app": "coredns"}},
        "template": {
            "metadata": {"labels": {"app": "coredns"}},
            "spec": {
                "serviceAccountName": "coredns",
                "priorityClassName": "system-cluster-critical",
                "dnsPolicy": "Default",
                "containers": [container],
                "volumes": [{"name": "config", "configMap": {"name": "coredns"}}],
            },
        },
    }
