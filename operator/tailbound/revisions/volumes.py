"""The volumes of a pod template: those of a runtime, and those that hold its configuration files.

A file's content is an annotation of the pod, which the downward API mounts: it is in the revision, and no
object of its own can be edited, deleted or missing at a rollback.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from tailbound.api.names import GROUP
from tailbound.api.pod_parts import FILES_VOLUME, RUNTIME_VOLUME, ConfigFile, Volume, VolumeMount

_FILE_ANNOTATION: Final = f"{GROUP}/file-"


def runtime_volumes(runtime: Iterable[Volume], files: Sequence[ConfigFile]) -> list[dict[str, Any]]:
    """The volumes of the pod, besides those of the model and the scratch space."""
    return [*map(_volume, runtime), *_file_volumes(files)]


def runtime_mounts(
    mounts: Iterable[VolumeMount], runtime: Iterable[Volume], files: Sequence[ConfigFile]
) -> list[dict[str, Any]]:
    """The mounts of these volumes in the server container."""
    writable = {volume.name for volume in runtime if volume.empty_dir is not None}
    return [
        *(
            {"name": f"{RUNTIME_VOLUME}{mount.name}", "mountPath": mount.mount_path}
            | ({} if mount.name in writable else {"readOnly": True})
            for mount in mounts
        ),
        *(
            {"name": f"{FILES_VOLUME}{index}", "mountPath": folder, "readOnly": True}
            for index, folder in enumerate(_folders(files))
        ),
    ]


def file_annotations(files: Sequence[ConfigFile]) -> dict[str, str]:
    """The annotations of the pod that hold the contents."""
    return {f"{_FILE_ANNOTATION}{index}": file.content for index, file in enumerate(files)}


def _volume(volume: Volume) -> dict[str, Any]:
    made: dict[str, Any] = volume.model_dump(mode="json", by_alias=True, exclude_none=True)
    made["name"] = f"{RUNTIME_VOLUME}{volume.name}"
    if volume.empty_dir is not None and not volume.empty_dir.medium:
        del made["emptyDir"]["medium"]
    if volume.persistent_volume_claim is not None:
        made["persistentVolumeClaim"]["readOnly"] = True
    return made


def _folders(files: Sequence[ConfigFile]) -> list[str]:
    return sorted({_folder(file) for file in files})


def _folder(file: ConfigFile) -> str:
    return file.path.rpartition("/")[0]


def _file_volumes(files: Sequence[ConfigFile]) -> list[dict[str, Any]]:
    return [
        {
            "name": f"{FILES_VOLUME}{number}",
            "downwardAPI": {
                "items": [
                    {
                        "path": file.path.rpartition("/")[2],
                        "fieldRef": {
                            "apiVersion": "v1",
                            "fieldPath": f"metadata.annotations['{_FILE_ANNOTATION}{index}']",
                        },
                    }
                    for index, file in enumerate(files)
                    if _folder(file) == folder
                ]
            },
        }
        for number, folder in enumerate(_folders(files))
    ]
