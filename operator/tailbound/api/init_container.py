"""Containers of a serving pod besides the server: those that prepare, and sidecars."""

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field, StringConstraints

from tailbound.api.meta import DNS_LABEL, EnvVar
from tailbound.api.pod_parts import MOUNTED_ONCE, VolumeMount
from tailbound.api.probe import Argument, Probe, numbered_port, only_one_success
from tailbound.api.quantities import Quantity
from tailbound.api.quantity_fields import Cpu, EphemeralStorage, Memory
from tailbound.api.runtime_contract import FETCH_CONTAINER, HOLD_CONTAINER, SERVER_CONTAINER
from tailbound.api.schema import ATOMIC, InOrder, Model, Rule, list_map, matches

_OURS: Final = (FETCH_CONTAINER, HOLD_CONTAINER, SERVER_CONTAINER)

Image = Annotated[
    str,
    StringConstraints(max_length=1024),
    matches(
        r"[^\s]+",
        "'{value}' is not an image: write a reference without blanks, for example "
        "registry.example.com/server:1.2.3",
    ),
]

ContainerName = Annotated[
    str,
    StringConstraints(max_length=63),
    InOrder(
        matches(
            DNS_LABEL, "'{value}' is not the name of a container: write lower-case letters, digits and dashes"
        ),
        Rule(
            cel=f"!(self in {list(_OURS)})",
            holds=lambda name: name not in _OURS,
            message="'{value}' is the name of a container of Tailbound's: choose another name",
        ),
    ),
]


class ImagePullPolicy(StrEnum):
    """When the node pulls the image."""

    ALWAYS = "Always"
    IF_NOT_PRESENT = "IfNotPresent"
    NEVER = "Never"


class RestartPolicy(StrEnum):
    """Makes an init container a sidecar."""

    ALWAYS = "Always"


class InitContainerResources(Model):
    """CPUs, memory and disk of the container, as both requests and limits."""

    cpu: Cpu = Quantity.parse("100m")
    """CPUs, for example 2 or 500m."""

    memory: Memory = Quantity.parse("128Mi")
    """Memory with its unit, for example 4Gi."""

    ephemeral_storage: EphemeralStorage = Quantity.parse("64Mi")
    """Disk for logs and for what the container writes to volumes on disk, with its unit."""


class InitContainer(Model):
    """A container that runs before the server, or a sidecar. Its root filesystem is read-only.

    The model is at /mnt/models, read-only; /tmp is the one of the server, as are the configuration files.
    Strings may hold the same expressions as those of server.
    """

    rules = (
        Rule(
            cel="has(self.restartPolicy) || !(has(self.startupProbe) || has(self.livenessProbe))",
            holds=lambda each: (
                each.restart_policy is not None
                or (each.startup_probe is None and each.liveness_probe is None)
            ),
            message="{value} has a probe but no restartPolicy Always: what ends before the server is not "
            "probed, remove the probe or make it a sidecar",
            quoted="name",
        ),
        MOUNTED_ONCE,
        only_one_success("startup_probe"),
        only_one_success("liveness_probe"),
        numbered_port("startup_probe"),
        numbered_port("liveness_probe"),
    )

    name: ContainerName
    """Name of the container."""

    image: Image
    """Image of the container."""

    image_pull_policy: ImagePullPolicy = ImagePullPolicy.IF_NOT_PRESENT
    """When the node pulls the image."""

    restart_policy: RestartPolicy | None = None
    """The value Always makes it a sidecar, which goes on beside the server. Default: it ends before."""

    command: Annotated[tuple[Argument, ...], Field(max_length=64), ATOMIC] = ()
    """Replaces the image's entry point."""

    args: Annotated[tuple[Argument, ...], Field(max_length=256), ATOMIC] = ()
    """Arguments of the entry point."""

    env: Annotated[tuple[EnvVar, ...], Field(max_length=64), list_map("name")] = ()
    """Environment variables, in addition to HOME and those that name the model and the revision."""

    volume_mounts: Annotated[tuple[VolumeMount, ...], Field(max_length=16), ATOMIC] = ()
    """Where the volumes of the runtime are mounted."""

    resources: InitContainerResources = InitContainerResources()
    """CPUs, memory and disk of the container. Those of sidecars add to those of the server."""

    startup_probe: Probe | None = None
    """Probe of a sidecar: the next containers start when it has succeeded. Its port is a number."""

    liveness_probe: Probe | None = None
    """Probe of a sidecar, which is restarted when it fails. Its port is a number."""

    @property
    def probed_ports(self) -> frozenset[int | str]:
        """The ports that its probes ask."""
        probes = (self.startup_probe, self.liveness_probe)
        return frozenset(probe.port for probe in probes if probe is not None and probe.port is not None)
