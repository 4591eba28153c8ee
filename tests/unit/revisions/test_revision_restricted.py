"""What the check of a pod template refuses, whatever a runtime or a record asks for."""

import copy
from typing import Any

import pytest
from tailbound.revisions.restricted import violations

from tests.unit.revisions.templates import template

FORBIDDEN: dict[str, tuple[tuple[Any, ...], Any, str]] = {
    "host network": (("hostNetwork",), True, "hostNetwork"),
    "host processes": (("hostPID",), True, "hostPID"),
    "host IPC": (("hostIPC",), True, "hostIPC"),
    "a node": (("nodeName",), "n1", "nodeName"),
    "a foreign account": (("serviceAccountName",), "admin", "serviceAccountName 'admin'"),
    "a token": (("automountServiceAccountToken",), True, "automountServiceAccountToken"),
    "a host path": (("volumes", 0), {"name": "models", "hostPath": {"path": "/"}}, "volumes[0].hostPath"),
    "a secret": (("volumes", 0), {"name": "models", "secret": {}}, "volumes[0].secret"),
    "a secret in place of certificates": (
        ("volumes", 0),
        {"name": "model-ca", "secret": {}},
        "volumes[0].secret",
    ),
    "a writable claim": (
        ("volumes", 0),
        {"name": "models", "persistentVolumeClaim": {"claimName": "c"}},
        "volumes[0].persistentVolumeClaim.readOnly",
    ),
    "any claim as a cache": (
        ("volumes", 0),
        {"name": "model-cache", "persistentVolumeClaim": {"claimName": "accounts"}},
        "volumes[0].persistentVolumeClaim.claimName must be that of a cache",
    ),
    "a cache that the server writes": (
        ("containers", 0, "volumeMounts", 0),
        {"name": "model-cache", "mountPath": "/x"},
        "containers[0].volumeMounts[0].readOnly must be true",
    ),
    "credentials for the server": (
        ("containers", 0, "volumeMounts", 0),
        {"name": "model-credentials", "mountPath": "/x"},
        "containers[0].volumeMounts[0]",
    ),
    "a projected token": (("volumes", 0), {"name": "runtime-a", "projected": {}}, "volumes[0].projected"),
    "root": (("securityContext", "runAsUser"), 0, "runAsUser"),
    "maybe root": (("securityContext", "runAsNonRoot"), False, "runAsNonRoot"),
    "no seccomp": (("securityContext", "seccompProfile", "type"), "Unconfined", "seccompProfile"),
    "sysctls": (("securityContext", "sysctls"), [{"name": "a"}], "sysctls"),
    "ephemeral": (("ephemeralContainers",), [{}], "ephemeralContainers"),
    "privileged": (
        ("containers", 0, "securityContext", "privileged"),
        True,
        "containers[0].securityContext.privileged",
    ),
    "escalation": (
        ("initContainers", 0, "securityContext", "allowPrivilegeEscalation"),
        True,
        "initContainers[0]",
    ),
    "writable root": (
        ("containers", 0, "securityContext", "readOnlyRootFilesystem"),
        False,
        "readOnlyRootFilesystem",
    ),
    "capabilities": (
        ("containers", 0, "securityContext", "capabilities", "add"),
        ["SYS_ADMIN"],
        "capabilities",
    ),
    "own user": (
        ("containers", 0, "securityContext", "runAsUser"),
        0,
        "containers[0].securityContext.runAsUser",
    ),
    "proc mount": (("containers", 0, "securityContext", "procMount"), "Unmasked", "procMount"),
    "host port": (("containers", 0, "ports", 0, "hostPort"), 80, "containers[0].ports[0]"),
    "probe elsewhere": (
        ("containers", 0, "readinessProbe"),
        {"httpGet": {"host": "h"}},
        "readinessProbe.httpGet.host",
    ),
    "hook elsewhere": (
        ("containers", 0, "lifecycle"),
        {"preStop": {"tcpSocket": {"host": "h"}}},
        "lifecycle.preStop",
    ),
    "environment from elsewhere": (("containers", 0, "envFrom"), [{}], "envFrom"),
    "a shared process namespace": (("shareProcessNamespace",), True, "shareProcessNamespace"),
    "a host's name": (("hostname",), "victim", "hostname is not allowed"),
    "another scheduler": (("schedulerName",), "mine", "schedulerName"),
    "another SELinux type": (("securityContext", "seLinuxOptions"), {"type": "spc_t"}, "seLinuxOptions"),
    "no AppArmor": (("securityContext", "appArmorProfile"), {"type": "Unconfined"}, "appArmorProfile"),
    "further groups": (("securityContext", "supplementalGroups"), [0], "supplementalGroups"),
    "root's group": (("securityContext", "fsGroup"), 0, "securityContext.fsGroup"),
    "a hook at the start": (("containers", 0, "lifecycle"), {"postStart": {}}, "lifecycle.postStart"),
    "a port of the server's name": (
        ("initContainers", 0, "ports"),
        [{"name": "http", "containerPort": 8081}],
        "initContainers[0].ports",
    ),
    "mounts on the host": (
        ("containers", 0, "volumeMounts", 0, "mountPropagation"),
        "Bidirectional",
        "containers[0].volumeMounts[0].mountPropagation",
    ),
    "a raw device": (("containers", 0, "volumeDevices"), [{}], "containers[0].volumeDevices"),
    "a privileged init container": (
        ("initContainers", 0, "securityContext", "privileged"),
        True,
        "initContainers[0].securityContext.privileged",
    ),
    "distance to every tenant": (
        ("affinity",),
        {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"labelSelector": {}, "topologyKey": "a", "namespaceSelector": {}}
                ]
            }
        },
        "[0].namespaceSelector is not allowed: pods are those of the namespace",
    ),
    "devices by a variable": (
        ("containers", 0, "env", 0),
        {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
        "env[0].name",
    ),
    "nothing in env": (("containers", 0, "env", 0), {"name": "A", "valueFrom": {}}, "env[0].valueFrom"),
    "node's fields in env": (
        ("containers", 0, "env", 0),
        {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        "env[0].valueFrom",
    ),
}


@pytest.mark.parametrize(("path", "value", "words"), FORBIDDEN.values(), ids=FORBIDDEN)
def test_the_restricted_check_refuses(path: tuple[Any, ...], value: Any, words: str) -> None:
    pod = copy.deepcopy(template()["spec"])
    target: Any = pod
    for step in path[:-1]:
        target = target[step]
    target[path[-1]] = value
    (violation,) = violations({"spec": pod}, None)
    assert words in violation


@pytest.mark.parametrize(
    "annotation",
    [
        "container.apparmor.security.beta.kubernetes.io/server",
        "container.seccomp.security.alpha.kubernetes.io/server",
        "seccomp.security.alpha.kubernetes.io/pod",
    ],
)
def test_the_restricted_check_refuses_annotations_that_lift_a_profile(annotation: str) -> None:
    pod = {**template(), "metadata": {"annotations": {annotation: "unconfined", "example.com/team": "risk"}}}
    (violation,) = violations(pod, None)
    assert violation.startswith(f"metadata.annotations[{annotation}] is not allowed")


_PLUGIN_KEYS = (
    *("k8s.v1.cni.cncf.io/networks", "v1.multus-cni.io/default-network", "cni.projectcalico.org/ipv4pools"),
    *("policy.cilium.io/no-track-port", "ovn.kubernetes.io/logical_switch", "networking.gke.io/interfaces"),
    *("a.b.ovn.kubernetes.io/logical_switch", "vpc.amazonaws.com/pod-eni", "io.cilium.no-track-port", "cni"),
    *("sidecar.istio.io/userVolume", "istio.io/rev", "linkerd.io/inject", "config.linkerd.io/proxy-image"),
    *("vault.hashicorp.com/agent-inject", "inject.istio.io/templates", "cdi.k8s.io/gpus", "run.oci.handler"),
    *("io.kubernetes.cri-o.Devices", "io.kubernetes.cri-o.userns-mode", "unified-cgroup.crio.io/server"),
    *("devices.nri.io/container.server", "io.katacontainers.config.hypervisor.path", "dev.gvisor.spec.mount"),
    *("iam.amazonaws.com/role", "azure.workload.identity/inject-proxy-sidecar", "aadpodidbinding"),
    *("k8s.aliyun.com/eci-ram-role-name", "alibabacloud.com/eci", "opflex.cisco.com/endpoint-group"),
    *("tke.cloud.tencent.com/networks", "serverless.fluid.io/inject", "dynatrace.com/inject"),
    *("vault.security.banzaicloud.io/vault-addr", "sidecar-injector.cyberark.com/inject"),
    "azure.workload.identity/use",
)
_OTHER_KEYS = (
    *("example.com/team", "cni-team", "notistio.io/x", "prometheus.io/scrape", "kueue.x-k8s.io/queue-name"),
    *("cluster-autoscaler.kubernetes.io/safe-to-evict", "istio.io.example.com/x", "ad.datadoghq.com/checks"),
)


@pytest.mark.parametrize("field", ["annotations", "labels"])
def test_the_restricted_check_refuses_each_key_that_a_plugin_of_the_cluster_acts_on(field: str) -> None:
    items = {
        **dict.fromkeys((*_PLUGIN_KEYS, *_OTHER_KEYS), "x"),
        "sidecar.istio.io/inject": "false",
        "oneagent.dynatrace.com/inject": "false",
    }
    pod = {**template(), "metadata": {field: items}}
    assert violations(pod, None) == tuple(
        f"metadata.{field}[{key}] is not allowed: a plugin of the cluster acts on it" for key in _PLUGIN_KEYS
    )
