"""Names that other people's tools may rely on: group, kinds, labels, annotations, ports, paths.

Frozen: a name here changes only with a new API version.
"""

from typing import Final

GROUP: Final = "tailbound.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

# The one server-side-apply field manager, and the reporting component of our Events.
FIELD_MANAGER: Final = "tailbound"

MANAGED_BY_LABEL: Final = "app.kubernetes.io/managed-by"
MANAGED_BY_VALUE: Final = "tailbound"

# On every child of an InferenceService: its name. The namespace is the child's own.
SERVICE_LABEL: Final = f"{GROUP}/service"
# On every child that belongs to one revision, and the pod selector of that revision's Deployment and Service.
REVISION_LABEL: Final = f"{GROUP}/revision"
# On the gateway's pods, in the operator's own namespace.
COMPONENT_LABEL: Final = "app.kubernetes.io/component"
GATEWAY_COMPONENT: Final = "gateway"

# Marks on a ControllerRevision. They outlive a lost status.
PROMOTED_AT_ANNOTATION: Final = (
    f"{GROUP}/promoted-at"  # RFC 3339; set once, when its traffic share of 100 was observed
)
STABLE_ANNOTATION: Final = f"{GROUP}/stable"  # "true" on the last fully promoted revision, absent elsewhere
SPEC_HASH_ANNOTATION: Final = (
    f"{GROUP}/spec-hash"  # digest of the spec fields that the revision was made from
)

# On a HardwareClass: "true" makes it the one that services without `hardware.class` get.
DEFAULT_CLASS_ANNOTATION: Final = f"{GROUP}/is-default-class"
# On objects that the operator created from the chart's defaults: digest of what it wrote, so that an
# object that somebody edited is recognised and never overwritten.
DEFAULTS_HASH_ANNOTATION: Final = f"{GROUP}/defaults-hash"

# Ports of the gateway's pods and of the operator's. Service port 80 goes to the first.
GATEWAY_HTTP_PORT: Final = 8080
GATEWAY_OBSERVED_PORT: Final = 8081  # /healthz, /readyz, /observed, /metrics
OPERATOR_HEALTH_PORT: Final = 8081  # /healthz, /readyz
OPERATOR_METRICS_PORT: Final = 8080  # /metrics

# Audience of the ServiceAccount tokens with which the operator reads /observed.
OBSERVED_AUDIENCE: Final = "tailbound-gateway"
