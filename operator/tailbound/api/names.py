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
# On a PersistentVolumeClaim that caches a model for its whole namespace: the claim's own name.
CACHE_LABEL: Final = f"{GROUP}/model-cache"
# On such a claim that a Job has filled before the digest was known: the name of a claim of the same model.
CACHED_MODEL_LABEL: Final = f"{GROUP}/cached-model"
# On the gateway's pods, in the operator's own namespace, with the name of the application and of the release.
APPLICATION_LABEL: Final = "app.kubernetes.io/name"
APPLICATION: Final = "tailbound"
INSTANCE_LABEL: Final = "app.kubernetes.io/instance"
COMPONENT_LABEL: Final = "app.kubernetes.io/component"
GATEWAY_COMPONENT: Final = "gateway"
OPERATOR_COMPONENT: Final = "operator"
# The operator that holds it, in the namespace of the installation, is the leader of its operators.
OPERATOR_LEASE: Final = "tailbound-operator"

# On the chart's default objects, with the name of the release. Not INSTANCE_LABEL: Argo CD prunes an object
# that has the name of an application there and is in no manifest of it.
RELEASE_LABEL: Final = f"{GROUP}/release"

# On the pods of a revision whose server speaks not just the Open Inference Protocol: the paths of its
# inference calls, as a JSON list.
INFERENCE_PATHS_ANNOTATION: Final = f"{GROUP}/inference-paths"
# On the pods of a revision whose runtime says where its server states the inputs and outputs of its model.
METADATA_PATH_ANNOTATION: Final = f"{GROUP}/metadata-path"
# On the pods of a revision whose runtime says which metrics of its server tell how much it can do: as JSON.
SERVER_METRICS_ANNOTATION: Final = f"{GROUP}/server-metrics"

# Marks on a ControllerRevision. They outlive a lost status.
PROMOTED_AT_ANNOTATION: Final = f"{GROUP}/promoted-at"  # RFC 3339; set once, when it first took over for good
STABLE_ANNOTATION: Final = f"{GROUP}/stable"  # "true" on the last fully promoted revision, absent elsewhere
SPEC_HASH_ANNOTATION: Final = (
    f"{GROUP}/spec-hash"  # digest of the spec fields that the revision was made from
)

REJECTED_AT_ANNOTATION: Final = f"{GROUP}/rejected-at"  # RFC 3339; while present it is not tried again
REJECTED_REASON_ANNOTATION: Final = f"{GROUP}/rejected-reason"  # a Reason
REJECTED_MESSAGE_ANNOTATION: Final = f"{GROUP}/rejected-message"  # the decision and its numbers, in words
REJECTED_BY_ANNOTATION: Final = f"{GROUP}/rejected-by"  # the user who asked for it; absent after a verdict
PROMOTED_BY_ANNOTATION: Final = f"{GROUP}/promoted-by"  # the user who asked for it; absent after a verdict
FORMERLY_REJECTED_ANNOTATION: Final = f"{GROUP}/formerly-rejected"  # as JSON; it was tried again after each
RETURN_GIVEN_UP_ANNOTATION: Final = f"{GROUP}/return-given-up"  # as JSON; of the last return to it
SUPERSEDED_AT_ANNOTATION: Final = f"{GROUP}/superseded-at"  # RFC 3339; a later spec came before a verdict
SUPERSEDED_BY_ANNOTATION: Final = f"{GROUP}/superseded-by"  # the revision of that spec
# On a ControllerRevision that fell back to another hardware class than its first: which, since when, and why.
FALLBACK_ANNOTATION: Final = f"{GROUP}/hardware-fallback"
# On the pods of a revision that lists several hardware classes: theirs.
HARDWARE_CLASS_ANNOTATION: Final = f"{GROUP}/hardware-class"
CAPACITY_ANNOTATION: Final = f"{GROUP}/capacity"  # how fast a pod of it was found to be, as JSON
SIGNATURE_ANNOTATION: Final = f"{GROUP}/model-signature"  # inputs and outputs of its model, as JSON

# Actions: annotations that people set on an InferenceService. A value is a revision's name, or that name with
# anything behind a slash, which tells a repetition from what was already acted on. What is being acted on is
# remembered: it goes on where the annotation is lost, as after a kubectl replace.
PROMOTE_ANNOTATION: Final = f"{GROUP}/promote"  # all requests to this revision once its endpoints are ready
ABORT_ANNOTATION: Final = f"{GROUP}/abort"  # reject this revision at once; wins over everything
RETRY_ANNOTATION: Final = f"{GROUP}/retry"  # forget that this revision was rejected
ROLLBACK_ANNOTATION: Final = f"{GROUP}/rollback-to"  # make this revision the stable one again
PAUSE_ANNOTATION: Final = f"{GROUP}/pause"  # keep this revision's weight until it is empty or names another
# Of any value: a new value is a new revision of the same spec, made from the runtime as it is then.
REFRESH_ANNOTATION: Final = f"{GROUP}/refresh"
# Marks on the ControllerRevision that an action names: the value of that action that was last acted on.
HANDLED_ANNOTATIONS: Final = {
    PROMOTE_ANNOTATION: f"{GROUP}/handled-promote",
    ABORT_ANNOTATION: f"{GROUP}/handled-abort",
    RETRY_ANNOTATION: f"{GROUP}/handled-retry",
    ROLLBACK_ANNOTATION: f"{GROUP}/handled-rollback-to",
}
# Marks on the same: the value that is being acted on.
UNDER_WAY_ANNOTATIONS: Final = {
    RETRY_ANNOTATION: f"{GROUP}/under-way-retry",
    ROLLBACK_ANNOTATION: f"{GROUP}/under-way-rollback-to",
    PAUSE_ANNOTATION: f"{GROUP}/under-way-pause",
}
# Set by the API server where it can: the user who last changed one of the actions.
REQUESTED_BY_ANNOTATION: Final = f"{GROUP}/requested-by"

# On a HardwareClass: "true" makes it the one that services without `hardware.class` get.
DEFAULT_CLASS_ANNOTATION: Final = f"{GROUP}/is-default-class"
# On objects that the operator created from the chart's defaults: digest of what it wrote, so that an
# object that was edited by hand is recognised and never overwritten.
DEFAULTS_HASH_ANNOTATION: Final = f"{GROUP}/defaults-hash"

# Ports of the gateway's pods and of the operator's. Service port 80 goes to the first.
GATEWAY_HTTP_PORT: Final = 8080
GATEWAY_OBSERVED_PORT: Final = 8081  # /observed
GATEWAY_METRICS_PORT: Final = 8082  # /metrics
GATEWAY_HEALTH_PORT: Final = 8083  # /healthz, /readyz
OPERATOR_HEALTH_PORT: Final = 8081  # /healthz, /readyz
OPERATOR_METRICS_PORT: Final = 8080  # /metrics

# Audience of the ServiceAccount tokens with which the operator reads /observed.
OBSERVED_AUDIENCE: Final = "tailbound-gateway"
OBSERVED_TLS_NAME: Final = "tailbound-gateway-observed"
"""The name in the certificates with which gateways answer /observed; pods have addresses only."""

# Metrics of the gateway's pods that verdicts are made of: finished requests by namespace, service, revision
# and class, and the Unix time since which they are counted.
REQUESTS_METRIC: Final = "tailbound_requests_total"
# What of a service's requests may miss an objective of its SLA, as a ratio from 0 to 1.
SLA_METRIC: Final = "tailbound_service_sla_ratio"
ENVOY_START_METRIC: Final = "tailbound_gateway_envoy_start_time_seconds"
# Jobs of Prometheus. What another job scraped under these names of metrics is not believed.
GATEWAYS_JOB: Final = "tailbound-gateways"
SERVING_JOB: Final = "tailbound-serving"
OPERATOR_JOB: Final = "tailbound-operator"

# Behind the name of a service, the name under which its candidate answers before it takes over.
PREVIEW_SUFFIX: Final = "-preview"


def preview_name(service: str) -> str:
    """The name of a service's preview: of its Service, and before .NAMESPACE in its hosts."""
    return service + PREVIEW_SUFFIX


# Prefixes of pod annotations by which older Kubernetes sets the AppArmor or seccomp profile of a container.
PROFILE_ANNOTATIONS: Final = (
    "container.apparmor.security.beta.kubernetes.io/",
    "container.seccomp.security.alpha.kubernetes.io/",
    "seccomp.security.alpha.kubernetes.io/",
)
