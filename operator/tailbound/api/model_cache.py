"""The volume on which the pods of a namespace keep a model, so that it is downloaded once."""

from enum import StrEnum
from typing import Annotated, Final

from tailbound.api.meta import ObjectName
from tailbound.api.quantities import Quantity
from tailbound.api.quantity_fields import quantity_between
from tailbound.api.schema import Model

CLAIM_PREFIX: Final = "tailbound-model-"
"""How the names of these claims begin."""


class CacheAccessMode(StrEnum):
    """Which nodes the pods that mount the volume may be on."""

    READ_WRITE_MANY = "ReadWriteMany"
    READ_WRITE_ONCE = "ReadWriteOnce"


class ModelCache(Model):
    """A PersistentVolumeClaim for the model, named after the model's digest. All revisions and services of
    the namespace with the same model and the same cache share it: the first pod downloads the model to it,
    every further one finds it there, also when the source is gone. It is deleted with the last revision that
    needs it."""

    storage_class_name: ObjectName | None = None
    """StorageClass of the volume. Default: the cluster's default class."""

    size: Annotated[
        Quantity, quantity_between("1Mi", "1Pi", "an amount of disk with its unit, for example 50Gi")
    ]
    """Size of the volume, with its unit. The model must be smaller; an archive needs room for itself and for
    what it holds."""

    access_mode: CacheAccessMode = CacheAccessMode.READ_WRITE_MANY
    """ReadWriteMany for pods on any nodes, as of a network file system. ReadWriteOnce is for a volume that
    one node at a time can mount, as most disks of clouds: all pods with the model must run on that node."""
