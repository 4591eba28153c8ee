"""Keys of pod labels and annotations, and variables, that plugins, runtimes and webhooks of a cluster act on.

They can put a pod on another network, past the NetworkPolicies, or into another sandbox, give it devices of
the host, an identity, or containers that were not checked. What the administrators of a cluster want of
these, they set for a namespace, a node or in the plugin itself.
"""

import re
from typing import Final

_NETWORK: Final = (
    *("cni.cncf.io", "multus-cni.io", "projectcalico.org", "cilium.io", "antrea.io", "ovn.org"),
    *("ovn.kubernetes.io", "spidernet.io", "danm.k8s.io", "danm.io", "networking.gke.io"),
    *("vpc.amazonaws.com", "networkservicemesh.io", "opflex.cisco.com", "cloud.tencent.com"),
)
_INJECTION: Final = (
    *("istio.io", "linkerd.io", "kuma.io", "openservicemesh.io", "appmesh.k8s.aws", "dapr.io"),
    *("consul.hashicorp.com", "vault.hashicorp.com", "sidecar.opentelemetry.io"),
    *("instrumentation.opentelemetry.io", "admission.datadoghq.com", "gke-gcsfuse", "fluid.io"),
    *("bank-vaults.io", "banzaicloud.io", "cyberark.com", "dynatrace.com"),
)
_IDENTITY: Final = ("iam.amazonaws.com", "azure.workload.identity", "aliyun.com", "alibabacloud.com")
"""Some of these also choose the network of a pod, or a machine that is no node of the cluster."""
_SANDBOX_AND_DEVICES: Final = ("crio.io", "cri-o.io", "nri.io", "nri.containerd.io", "cdi.k8s.io")
_DOMAINS: Final = (*_NETWORK, *_INJECTION, *_IDENTITY, *_SANDBOX_AND_DEVICES)
"""Domains of keys, each of which stands for those below it as well."""
_BEGINNINGS: Final = (
    *("io.kubernetes.", "io.katacontainers.", "io.containerd.", "io.podman.", "io.cilium"),
    *("dev.gvisor.", "run.oci.", "org.criu."),
)
"""Beginnings of keys whose domain is written backwards."""
_WITHOUT_DOMAIN: Final = ("cni", "aadpodidbinding")
"""Keys by which CNI-Genie chooses networks, and AAD Pod Identity an identity."""
DEVICE_VARIABLES: Final = [
    *("NVIDIA_VISIBLE_DEVICES", "NVIDIA_IMEX_CHANNELS", "NVIDIA_MIG_CONFIG_DEVICES"),
    *("NVIDIA_MIG_MONITOR_DEVICES", "AMD_VISIBLE_DEVICES", "HABANA_VISIBLE_DEVICES"),
    *("ASCEND_VISIBLE_DEVICES", "MTHREADS_VISIBLE_DEVICES", "METAX_VISIBLE_DEVICES"),
]
"""Variables of container runtimes, which would give a pod devices that it was not scheduled for."""


def _any_of(texts: tuple[str, ...]) -> str:
    return "|".join(map(re.escape, texts))


PLUGIN_KEYS: Final = (
    rf"(?:[^/]*\.)?(?:{_any_of(_DOMAINS)})/.*|(?:{_any_of(_BEGINNINGS)}).*|{_any_of(_WITHOUT_DOMAIN)}"
)
"""A pattern of whole keys, which means the same to RE2 and to Python."""
_PLUGIN_KEY: Final = re.compile(PLUGIN_KEYS)


OPT_OUTS: Final = {
    "sidecar.istio.io/inject": "false",
    "linkerd.io/inject": "disabled",
    "kuma.io/sidecar-injection": "disabled",
    "openservicemesh.io/sidecar-injection": "disabled",
    "consul.hashicorp.com/connect-inject": "false",
    "vault.hashicorp.com/agent-inject": "false",
    "dapr.io/enabled": "false",
    "azure.workload.identity/use": "false",
    "dynatrace.com/inject": "false",
    "oneagent.dynatrace.com/inject": "false",
    "metadata-enrichment.dynatrace.com/inject": "false",
}
"""Keys with the value by which a pod gets nothing: only this value is allowed."""


def is_acted_on(key: str, value: str) -> bool:
    """Whether something of the cluster does something to a pod with this label or annotation."""
    return _PLUGIN_KEY.fullmatch(key) is not None and OPT_OUTS.get(key) != value
