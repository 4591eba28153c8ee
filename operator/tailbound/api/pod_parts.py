"""Parts of a serving pod beside its server: files, volumes, where they are mounted, and its user."""

import re
from enum import StrEnum
from typing import Annotated, Final

from pydantic import StrictInt, StringConstraints

from tailbound.api.meta import DNS_LABEL, ObjectName
from tailbound.api.quantities import Quantity
from tailbound.api.quantity_fields import quantity_between
from tailbound.api.runtime_contract import MODELS_MOUNT, SCRATCH_MOUNT, SOURCE_MOUNT
from tailbound.api.schema import InOrder, Model, Rule, matches, whole_number

FILES_VOLUME: Final = "files-"
"""Prefix, in a pod, of the volumes that hold configuration files."""
RUNTIME_VOLUME: Final = "runtime-"
"""Prefix, in a pod, of the volumes that a runtime names."""
LONGEST_FILE: Final = 16 * 1024
_SOURCES: Final = ("emptyDir", "configMap", "secret", "persistentVolumeClaim")
_ONE_SOURCE: Final = " + ".join(f"(has(self.{name}) ? 1 : 0)" for name in _SOURCES)

_WELL_FORMED = matches(
    r"(?:/\.?[-A-Za-z0-9_][-A-Za-z0-9._]*)+",
    "'{value}' is not a path: write an absolute path of letters, digits, '-', '_' and '.', without '..' and "
    "without a slash at the end",
)
_TAILBOUNDS: Final = (MODELS_MOUNT, SOURCE_MOUNT, "/var/run/tailbound")


def _is_ours(path: str) -> bool:
    return any(f"{path}/".startswith(f"{ours}/") for ours in _TAILBOUNDS)


_IN_CEL: Final = " && ".join(f"!(self + '/').startsWith('{ours}/')" for ours in _TAILBOUNDS)
_NOT_OURS = Rule(
    cel=f"self != '{SCRATCH_MOUNT}' && {_IN_CEL}",
    holds=lambda path: path != SCRATCH_MOUNT and not _is_ours(path),
    message=f"'{{value}}' is Tailbound's: {MODELS_MOUNT} holds the model and {SCRATCH_MOUNT} is the writable "
    "scratch space; choose another path",
)
# What a container cannot do without, the folder of the model included. A runtime's own folders may be below.
_NEEDED: Final = r"/(?:bin|dev|etc|lib|lib64|mnt|sbin|usr)|/(?:proc|sys)(?:/.*)?|/dev/termination-log"
_FOLDERS_OF_IMAGES: Final = (
    r"/(?:bin|boot|dev|etc|home|lib|lib64|media|mnt|opt|root|run|sbin|srv|tmp|var)|/(?:proc|sys)(?:/.*)?|"
    r"/usr(?:/local)?(?:/(?:bin|lib|lib64|sbin))?"
)
_IS_NEEDED: Final = re.compile(f"(?:{_NEEDED})")
_HIDES: Final = Rule(
    cel=f"!self.matches('^(?:{_NEEDED})$')",
    holds=lambda path: _IS_NEEDED.fullmatch(path) is None,
    message="'{value}' would hide what every container needs: choose another path, for example /opt/cache",
)
_IN_A_NEEDED_FOLDER: Final = re.compile(f"(?:{_FOLDERS_OF_IMAGES})/[^/]*")
MountPath = Annotated[str, StringConstraints(max_length=512), InOrder(_WELL_FORMED, _NOT_OURS, _HIDES)]

FilePath = Annotated[
    str,
    StringConstraints(max_length=512),
    InOrder(
        _WELL_FORMED,
        Rule(
            cel=f"self.matches('^/.+/') && !self.matches('^(?:{_FOLDERS_OF_IMAGES})/[^/]*$') && {_IN_CEL}",
            holds=lambda path: (
                path.count("/") > 1 and _IN_A_NEEDED_FOLDER.fullmatch(path) is None and not _is_ours(path)
            ),
            message="'{value}' would hide a folder that the pod needs, because the folder of a file is "
            "mounted as a whole: choose a folder of its own, for example /etc/server/config.yaml",
        ),
    ),
]

VolumeName = Annotated[
    str,
    StringConstraints(max_length=50),
    matches(DNS_LABEL, "'{value}' is not the name of a volume: write lower-case letters, digits and dashes"),
]


class ConfigFile(Model):
    """A configuration file of the server. Every revision keeps its content, and a rollback returns to it."""

    path: FilePath
    """Absolute path in the server container. The folder holds the files of this list and nothing else."""

    content: Annotated[str, StringConstraints(max_length=LONGEST_FILE)]
    """Content of the file, with the same expressions as the strings of server."""


class StorageMedium(StrEnum):
    """The medium of an emptyDir."""

    DISK = ""
    MEMORY = "Memory"


class EmptyDirVolume(Model):
    """A writable folder that is empty when the pod starts and gone when it ends."""

    medium: StorageMedium = StorageMedium.DISK
    """Memory: in memory, for example for /dev/shm; it counts as memory of the server. Default: on disk."""

    size_limit: Annotated[
        Quantity, quantity_between("1Mi", "1Pi", "an amount with its unit, for example 2Gi")
    ]
    """Size beyond which the pod is evicted."""


class ConfigMapVolume(Model):
    """The keys of a ConfigMap as files."""

    name: ObjectName
    """Name of a ConfigMap in the namespace of the service."""


class SecretVolume(Model):
    """The keys of a Secret as files."""

    secret_name: ObjectName
    """Name of a Secret in the namespace of the service."""


class ClaimVolume(Model):
    """A PersistentVolumeClaim, read-only."""

    claim_name: ObjectName
    """Name of a PersistentVolumeClaim in the namespace of the service."""


class Volume(Model):
    """A volume of the serving pods, with exactly one source."""

    rules = (
        Rule(
            cel=f"{_ONE_SOURCE} == 1",
            holds=lambda volume: volume.sources() == 1,
            message="this volume has {value} of emptyDir, configMap, secret and persistentVolumeClaim: write "
            "exactly one",
            value_cel=_ONE_SOURCE,
            value=lambda volume: volume.sources(),
        ),
    )

    name: VolumeName
    """Name of the volume."""

    empty_dir: EmptyDirVolume | None = None
    """A writable folder."""

    config_map: ConfigMapVolume | None = None
    """A ConfigMap."""

    secret: SecretVolume | None = None
    """A Secret. Who names it in a ServingRuntime must be allowed to get it."""

    persistent_volume_claim: ClaimVolume | None = None
    """A PersistentVolumeClaim; it is mounted read-only."""

    def sources(self) -> int:
        """The number of sources that are set."""
        ways = (self.empty_dir, self.config_map, self.secret, self.persistent_volume_claim)
        return sum(way is not None for way in ways)


class VolumeMount(Model):
    """The path at which the server finds a volume. Only an emptyDir is writable."""

    name: VolumeName
    """Name of one of the volumes."""

    mount_path: MountPath
    """Absolute path in the container."""


_AT_ONE_PATH: Final = (
    "has(self.volumeMounts) ? self.volumeMounts.filter(m, self.volumeMounts.filter(o, o.mountPath == "
    "m.mountPath).size() > 1).map(m, m.mountPath) : []"
)


def _doubled(mounts: tuple[VolumeMount, ...]) -> list[str]:
    paths = [mount.mount_path for mount in mounts]
    return [path for path in paths if paths.count(path) > 1]


MOUNTED_ONCE: Final = Rule(
    cel=f"size({_AT_ONE_PATH}) == 0",
    holds=lambda container: not _doubled(container.volume_mounts),
    message="volumeMounts has two volumes at {value}: give each a path of its own",
    value_cel=f"({_AT_ONE_PATH})[0]",
    value=lambda container: _doubled(container.volume_mounts)[0],
)
"""A rule for a container: its volumes are at different paths."""


HIGHEST_ID: Final = 2147483647


class PodSecurity(Model):
    """User and groups of every container of the pod; 0, which is root, is none of them."""

    run_as_user: (
        Annotated[StrictInt, whole_number("runAsUser", 1, HIGHEST_ID, "the number of a user")] | None
    ) = None
    """User, for an image whose files belong to a user of its own. Default: that of the installation."""

    run_as_group: (
        Annotated[StrictInt, whole_number("runAsGroup", 1, HIGHEST_ID, "the number of a group")] | None
    ) = None
    """Group. Default: that of the installation."""

    fs_group: Annotated[StrictInt, whole_number("fsGroup", 1, HIGHEST_ID, "the number of a group")] | None = (
        None
    )
    """Group to which the volumes belong. Default: that of the installation."""
