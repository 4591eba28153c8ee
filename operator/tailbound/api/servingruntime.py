"""ServingRuntime and ClusterServingRuntime: structured pod templates for model formats."""

from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import Field, StrictBool, StrictInt, StringConstraints, model_validator

from tailbound.api.inference_paths import (
    DEFAULT_PROTOCOLS,
    MOST_FURTHER,
    InferencePath,
    MetadataPath,
    ServerProtocol,
    inference_paths,
)
from tailbound.api.init_container import Image, ImagePullPolicy, InitContainer
from tailbound.api.meta import EnvVar, ObjectMeta
from tailbound.api.pod_parts import MOUNTED_ONCE, ConfigFile, PodSecurity, Volume, VolumeMount
from tailbound.api.probe import PORT_NAME, Argument, PreStop, Probe, only_one_success
from tailbound.api.quantities import Duration
from tailbound.api.quantity_fields import duration_between
from tailbound.api.runtime_contract import HTTP_PORT_NAME
from tailbound.api.schema import ATOMIC, SET, Model, Rule, list_map, matches
from tailbound.api.server_metrics import ServerMetrics


class DrainMode(StrEnum):
    """Who answers for the requests in flight when a pod stops."""

    SERVER = "server"
    HOLD = "hold"


class Drain(Model):
    """How requests in flight are answered when a pod stops."""

    mode: DrainMode = DrainMode.SERVER
    """server: the server itself keeps serving after SIGTERM and answers what is in flight. hold: SIGTERM
    reaches the server only when no gateway has a request open on the pod, or when the longest request is
    over; for servers that cut what is in flight."""

    time: Annotated[
        Duration,
        duration_between(
            "1s", "10m", "as long as gateways and slow requests need after a pod begins to stop"
        ),
    ] = Duration(10_000)
    """Time for which new requests may still arrive after a pod has begun to stop. With mode server, the
    server serves so long after SIGTERM, while its readiness probe already fails; with mode hold, SIGTERM is
    held back at least so long."""

    @model_validator(mode="before")
    @classmethod
    def _written_as_a_time_alone(cls, raw: Any) -> Any:
        """Reads a drain as an earlier version stored it: a duration alone."""
        return {"time": raw} if isinstance(raw, str) else raw


FormatName = Annotated[
    str,
    StringConstraints(max_length=32),
    matches(
        "[a-z0-9](?:[-a-z0-9]*[a-z0-9])?",
        "'{value}' is not a model format: write lower-case letters, digits and dashes, for example onnx",
    ),
]


class SupportedFormat(Model):
    """A model format that this runtime serves."""

    name: FormatName
    """Value of spec.model.format in an InferenceService."""


class ContainerPort(Model):
    """A port that the server listens on."""

    name: Annotated[
        str,
        StringConstraints(max_length=15),
        matches(
            PORT_NAME,
            "'{value}' is not a port name: write lower-case letters, digits and single dashes, with at least "
            "one letter",
        ),
    ]
    """http: Open Inference Protocol over HTTP/1.1, required. grpc: the same over h2c. metrics: Prometheus."""

    container_port: Annotated[StrictInt, Field(ge=1, le=65535)]
    """Number of the port."""


class ServerContainer(Model):
    """The container that serves the model.

    Strings may hold {{ expressions }} over service.name, service.namespace, model.path, model.folder (in
    which model.path is), model.format, model.uri, revision.name, hardware.class, hardware.devices,
    resources.cpu, resources.memory, timeout.seconds, batching.mode, batching.maxBatchSize,
    batching.preferredBatchSizes (4,8) and batching.maxQueueDelaySeconds.
    """

    rules = (
        Rule(
            cel=f"self.ports.exists(p, p.name == '{HTTP_PORT_NAME}')",
            holds=lambda server: any(port.name == HTTP_PORT_NAME for port in server.ports),
            message=f"none of the ports is named {HTTP_PORT_NAME}: give this name to the one that serves the "
            "Open Inference Protocol over HTTP",
        ),
        MOUNTED_ONCE,
        only_one_success("startup_probe"),
        only_one_success("liveness_probe"),
    )

    image: Image
    """Image of the server."""

    image_pull_policy: ImagePullPolicy = ImagePullPolicy.IF_NOT_PRESENT
    """When the node pulls the image."""

    command: Annotated[tuple[Argument, ...], Field(max_length=64), ATOMIC] = ()
    """Replaces the image's entry point."""

    args: Annotated[tuple[Argument, ...], Field(max_length=256), ATOMIC] = ()
    """Arguments of the entry point."""

    env: Annotated[tuple[EnvVar, ...], Field(max_length=64), list_map("name")] = ()
    """Environment variables, in addition to those that Tailbound sets."""

    volume_mounts: Annotated[tuple[VolumeMount, ...], Field(max_length=16), ATOMIC] = ()
    """Where the volumes are mounted. The model is at /mnt/models, read-only, and /tmp is writable."""

    ports: Annotated[tuple[ContainerPort, ...], Field(min_length=1, max_length=16), list_map("name")]
    """Ports; one must be named http."""

    startup_probe: Probe | None = None
    """The other probes wait until this one has succeeded."""

    readiness_probe: Probe | None = None
    """Decides whether the pod gets requests."""

    liveness_probe: Probe | None = None
    """Restarts the container when it fails."""

    pre_stop: PreStop | None = None
    """What runs before SIGTERM. It must end within drain.time, and is not possible with drain.mode hold."""


ConfigFiles = Annotated[tuple[ConfigFile, ...], Field(max_length=16), list_map("path")]
InitContainers = Annotated[tuple[InitContainer, ...], Field(max_length=8), list_map("name")]


class RuntimeTemplate(Model):
    """The part of a runtime whose strings may hold expressions, after they were expanded."""

    server: ServerContainer
    files: ConfigFiles = ()
    init_containers: InitContainers = ()


_MOUNTED_IN_CEL: Final = (
    "has(self.server.volumeMounts) ? self.server.volumeMounts.filter(m, !has(self.volumes) || "
    "!self.volumes.exists(v, v.name == m.name)).map(m, m.name) : []"
)
_INIT_MOUNTED_IN_CEL: Final = (
    "has(self.initContainers) ? self.initContainers.filter(c, has(c.volumeMounts) && "
    "c.volumeMounts.exists(m, !has(self.volumes) || !self.volumes.exists(v, v.name == m.name)))"
    ".map(c, c.name) : []"
)
_ON_A_SERVER_PORT: Final = " || ".join(
    f"(has(c.{probe}) && has(c.{probe}.{way}) && type(c.{probe}.{way}.port) == int && "
    f"self.server.ports.exists(p, p.containerPort == c.{probe}.{way}.port))"
    if way != "grpc"
    else f"(has(c.{probe}) && has(c.{probe}.grpc) && "
    f"self.server.ports.exists(p, p.containerPort == c.{probe}.grpc.port))"
    for probe in ("startupProbe", "livenessProbe")
    for way in ("httpGet", "tcpSocket", "grpc")
)
_SHARING_IN_CEL: Final = (
    f"has(self.initContainers) ? self.initContainers.filter(c, {_ON_A_SERVER_PORT}).map(c, c.name) : []"
)
_FOLDER_IN_CEL: Final = "f.path.substring(0, f.path.lastIndexOf('/') + 1)"
_CROSSING_IN_CEL: Final = (
    f"({_FOLDER_IN_CEL}.startsWith(m.mountPath + '/') || (m.mountPath + '/').startsWith({_FOLDER_IN_CEL}))"
)
_IN_THE_WAY: Final = (
    "has(self.files) ? self.files.filter(f, (has(self.server.volumeMounts) && "
    f"self.server.volumeMounts.exists(m, {_CROSSING_IN_CEL})) || (has(self.initContainers) && "
    "self.initContainers.exists(c, has(c.volumeMounts) && "
    f"c.volumeMounts.exists(m, {_CROSSING_IN_CEL}))) || "
    "self.files.exists(o, o.path.startsWith(f.path + '/'))).map(f, f.path) : []"
)


def _crossing(one: str, other: str) -> bool:
    """Whether one folder is the other, or in it; both end with a slash."""
    return one.startswith(other) or other.startswith(one)


class ServingRuntimeSpec(Model):
    """How models of some formats are served."""

    rules = (
        Rule(
            cel=f"size({_MOUNTED_IN_CEL}) == 0",
            holds=lambda spec: not spec.unknown_mounts,
            message="server.volumeMounts names {value}, and there is no such volume in volumes: add it, or "
            "remove the mount",
            value_cel=f"({_MOUNTED_IN_CEL})[0]",
            value=lambda spec: spec.unknown_mounts[0],
        ),
        Rule(
            cel=f"size({_INIT_MOUNTED_IN_CEL}) == 0",
            holds=lambda spec: not spec.with_unknown_mounts,
            message="initContainers has {value}, which mounts a volume that is not in volumes: add the "
            "volume, or remove the mount",
            value_cel=f"({_INIT_MOUNTED_IN_CEL})[0]",
            value=lambda spec: spec.with_unknown_mounts[0],
        ),
        Rule(
            cel=f"size({_SHARING_IN_CEL}) == 0",
            holds=lambda spec: not spec.on_a_server_port,
            message="initContainers has {value}, whose probe asks a port of server.ports, and the containers "
            "of a pod share their ports, so that only one of the two could listen: give the sidecar a port "
            "of its own",
            value_cel=f"({_SHARING_IN_CEL})[0]",
            value=lambda spec: spec.on_a_server_port[0],
        ),
        Rule(
            cel=f"size({_IN_THE_WAY}) == 0",
            holds=lambda spec: not spec.files_in_the_way,
            message="files has {value}, whose folder is that of another mount, or around or in it, so that "
            "no pod would start: give these files a folder of their own",
            value_cel=f"({_IN_THE_WAY})[0]",
            value=lambda spec: spec.files_in_the_way[0],
        ),
        Rule(
            cel="!has(self.server.preStop) || !has(self.drain) || self.drain.mode != 'hold'",
            holds=lambda spec: spec.server.pre_stop is None or spec.drain.mode is not DrainMode.HOLD,
            message="server.preStop is set, and drain.mode hold needs the preStop hook itself: remove one of "
            "the two",
        ),
        Rule(
            cel="!has(self.protocols) || size(self.protocols) > 0",
            holds=lambda spec: bool(spec.protocols),
            message="protocols is empty, so that no request would count as an inference call: name a "
            "protocol, or write custom, and the paths of the server's own in inferencePaths",
        ),
        Rule(
            cel=f"!has(self.protocols) || !self.protocols.exists(p, p == '{ServerProtocol.CUSTOM}') || "
            "(has(self.inferencePaths) && size(self.inferencePaths) > 0)",
            holds=lambda spec: ServerProtocol.CUSTOM not in spec.protocols or bool(spec.inference_paths),
            message="protocols has custom, and inferencePaths is empty: write the paths of the inference "
            "calls of the server there, for example /models/{model}/answer, or remove custom",
        ),
    )

    formats: Annotated[tuple[SupportedFormat, ...], Field(min_length=1, max_length=32), list_map("name")]
    """Model formats that this runtime serves."""

    priority: Annotated[StrictInt, Field(ge=-1000, le=1000)] = 0
    """Among several runtimes for a format in the same scope, the one with the highest priority is chosen."""

    drain: Drain = Drain()
    """How requests in flight are answered when a pod stops."""

    sheds: StrictBool = False
    """True if the server itself acts on spec.overload shed: it then refuses a request that it could only
    answer after the milliseconds in the request header x-tailbound-latency-bound-ms, with a 503 that has the
    header x-tailbound-shed. For every other server the gateways refuse, seconds after an overload began."""

    protocols: Annotated[tuple[ServerProtocol, ...], Field(max_length=8), SET] = DEFAULT_PROTOCOLS
    """What the server speaks. It says which requests are inference calls: those that count for the SLA and in
    rollouts. custom: those at the paths in inferencePaths."""

    inference_paths: Annotated[tuple[InferencePath, ...], Field(max_length=MOST_FURTHER), SET] = ()
    """Further paths of inference calls. A * stands for one or more characters without a slash, ** at the end
    for any rest, and {model} for the name of the model: gateways answer a call with another name than the
    service's with 421. Over HTTP only a POST is an inference call."""

    metadata_path: MetadataPath | None = None
    """Path at which the server states the inputs and outputs of its model in JSON as the Open Inference
    Protocol writes them, with {model} for the name of the model. The models of a rollout are compared by it.
    Default: /v2/models/{model} with oip-rest, and otherwise none."""

    metrics: ServerMetrics | None = None
    """Which metrics of the server tell how much it can do. Default: those of the included server, if it has
    them, or else what the gateways see of it."""

    files: ConfigFiles = ()
    """Configuration files of the server. Each revision keeps their contents."""

    volumes: Annotated[tuple[Volume, ...], Field(max_length=16), list_map("name")] = ()
    """Volumes of the serving pods, besides that of the model and the scratch space."""

    init_containers: InitContainers = ()
    """Containers that run after the model was fetched, one after the other, before the server. Those with
    restartPolicy Always are sidecars: they start in this order, go on beside the server and stop after it."""

    security_context: PodSecurity = PodSecurity()
    """User and groups of all containers of the pod. What else a security context can say is always that of
    the Pod Security profile restricted."""

    server: ServerContainer
    """The container that serves the model."""

    @property
    def unknown_mounts(self) -> tuple[str, ...]:
        """The names in volumeMounts that are those of no volume."""
        known = {volume.name for volume in self.volumes}
        return tuple(mount.name for mount in self.server.volume_mounts if mount.name not in known)

    @property
    def with_unknown_mounts(self) -> tuple[str, ...]:
        """The names of init containers that mount a volume which is not in volumes."""
        known = {volume.name for volume in self.volumes}
        return tuple(
            each.name
            for each in self.init_containers
            if any(mount.name not in known for mount in each.volume_mounts)
        )

    @property
    def on_a_server_port(self) -> tuple[str, ...]:
        """The names of sidecars that are asked at a port of the server."""
        of_server = {port.container_port for port in self.server.ports}
        return tuple(each.name for each in self.init_containers if each.probed_ports & of_server)

    @property
    def files_in_the_way(self) -> tuple[str, ...]:
        """The paths of files whose folder cannot be mounted beside the volumes and the other files."""
        lists = (self.server.volume_mounts, *(each.volume_mounts for each in self.init_containers))
        mounts = [f"{mount.mount_path}/" for each in lists for mount in each]
        return tuple(
            file.path
            for file in self.files
            if any(_crossing(f"{file.path.rpartition('/')[0]}/", mount) for mount in mounts)
            or any(other.path.startswith(f"{file.path}/") for other in self.files)
        )

    @property
    def inference_calls(self) -> tuple[str, ...]:
        """The paths of all inference calls, those of the protocols included."""
        return inference_paths(self.protocols, self.inference_paths)

    def serves(self, model_format: str) -> bool:
        """Whether models of this format can be served."""
        return any(supported.name == model_format for supported in self.formats)


class ServingRuntime(Model):
    """ServingRuntime defines how model formats are served in its namespace. It precedes cluster-wide ones."""

    metadata: ObjectMeta
    spec: ServingRuntimeSpec


class ClusterServingRuntime(Model):
    """ClusterServingRuntime defines how model formats are served in every namespace."""

    metadata: ObjectMeta
    spec: ServingRuntimeSpec
