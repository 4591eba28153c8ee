"""Building images with buildah, each content once: the archive of an unchanged image is taken from the cache.

buildah runs in a mount namespace of its own, so that it leaves no mount behind, and keeps its layers in our
cache folder, apart from the user's.
"""

import hashlib
import json
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.cluster.binaries import cache_folder, file_lock
from e2e.cluster.images import Image
from e2e.cluster.processes import output
from e2e.cluster.progress import announced

BUILD_TIMEOUT_SECONDS = 1800
_KEPT = 2
"""Archives of each image. With one, checkouts that take turns would build each time, and remove the archive
that another is about to load. All images together take 4 GB."""
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
_IGNORED = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.pyc", ".*")


def build(image: Image, place: str = "") -> Path:
    """The image as an archive that containerd can load; built, after its parents, unless it is in the cache.

    `place` is said to the person who waits: "2 of 5".
    Raises ProcessError with the end of the build's output if it fails.
    """
    with tempfile.TemporaryDirectory(prefix="tailbound-image-") as folder:
        context = Path(folder)
        content = _stage(image, context)
        target = _archive(image, content)
        with file_lock(_folder() / f"{image.name}.lock"):
            if target.exists():
                target.touch()
            else:
                parents = {argument: _present(parent) for argument, parent in image.parents.items()}
                with announced(f"image {image.name}", cache_folder(), place):
                    _build(image, context, content, {**image.arguments, **parents})
                    _save(image, content, target)
                    _remove_unused(image)
    return target


@contextmanager
def container(image: Image) -> Iterator["Container"]:
    """A container of the image, which is built for it and removed after it, with its layers and no archive.

    The build takes four times the disk of the image: its container, its layer in two files, and its storage.
    Raises ProcessError with the end of the build's output if it fails.
    """
    with tempfile.TemporaryDirectory(prefix="tailbound-image-") as folder:
        context = Path(folder)
        content = _stage(image, context)
        tag = _tag(image, content)
        parents = {argument: _present(parent) for argument, parent in image.parents.items()}
        with announced(f"image {image.name}", cache_folder()):
            _build(image, context, content, {**image.arguments, **parents}, keeps_layers=False)
        try:
            described = json.loads(_buildah("inspect", "--type=image", tag))
            name = _buildah("from", "--pull=never", tag).strip()
            try:
                layers = json.loads(described["Manifest"])["layers"]
                yield Container(name, described["OCIv1"]["config"], sum(layer["size"] for layer in layers))
            finally:
                _buildah("rm", name)
        finally:
            _buildah("rmi", "--force", tag)


# buildah's own `run` does not pass SIGTERM on.
_RUN = """
root=$(%s) || exit
folder=$1 user=$2; shift 2
mount -t tmpfs tmpfs "$root/tmp" || exit
mkdir -p "$root$folder" || exit
for each in /proc /dev "$folder"; do mount --rbind "$each" "$root$each" || exit; done
mount -o remount,bind,ro "$root" || exit
exec chroot --userspec="$user" "$root" env --ignore-environment "$@"
"""


@dataclass(frozen=True)
class Container:
    """A container in buildah's storage.

    name: as buildah has it
    config: of its image, as the OCI's image specification says
    image_bytes: the size of its image, the base included
    """

    name: str
    config: Mapping[str, Any]
    image_bytes: int

    def command(self, variables: Mapping[str, str], folder: Path) -> list[str]:
        """The command line that runs the image's entry with its user and these variables.

        Its root file system is read-only but for /tmp, as in a pod, and has this folder. The network is ours.
        """
        mounted = shlex.join(_with_storage("mount", self.name))
        return [
            *("unshare", "--mount", "--", "sh", "-c", _RUN % mounted, "sh"),
            *(str(folder), self.config["User"], *self.config["Env"]),
            *(f"{name}={value}" for name, value in variables.items()),
            *self.config["Entrypoint"],
        ]


def _folder() -> Path:
    return cache_folder() / "images"


def _archive(image: Image, content: str) -> Path:
    return _folder() / f"{image.name}-{content}.tar"


def _tag(image: Image, content: str) -> str:
    return f"localhost/cache/{image.name}:{content}"


def _present(image: Image) -> str:
    """The tag under which a parent is in buildah's storage, loaded from its archive if need be."""
    archive = build(image)
    tag = _tag(image, archive.stem.rsplit("-", 1)[1])
    if not _buildah("images", "--quiet", "--filter", f"reference={tag}").strip():
        _buildah("pull", f"docker-archive:{archive}")
        _buildah("tag", image.reference, tag)
    return tag


def _build(
    image: Image, context: Path, content: str, arguments: dict[str, str], *, keeps_layers: bool = True
) -> None:
    certificates = f"{CERTIFICATES}:{CERTIFICATES}:ro"
    _buildah(
        "build",
        "--isolation=chroot",
        "--network=host",
        f"--layers={str(keeps_layers).lower()}",
        "--pull=never",
        *(("--volume", certificates) if CERTIFICATES.exists() else ()),
        *(f"--build-arg={name}={value}" for name, value in arguments.items()),
        f"--file={image.containerfile}",
        f"--tag={_tag(image, content)}",
        str(context),
    )


def _save(image: Image, content: str, target: Path) -> None:
    staging = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        _buildah("push", _tag(image, content), f"docker-archive:{staging}:{image.reference}")
        staging.rename(target)
    finally:
        staging.unlink(missing_ok=True)


def _remove_unused(image: Image) -> None:
    """Remove the archives of an image but those that were used last."""
    archives = _folder().glob(f"{image.name}-{'[0-9a-f]' * 16}.tar")
    for outdated in sorted(archives, key=lambda each: each.stat().st_mtime, reverse=True)[_KEPT:]:
        outdated.unlink()


def _buildah(command: str, *arguments: str) -> str:
    given = ["unshare", "--mount", "--", *_with_storage(command, *arguments)]
    return output(given, timeout_seconds=BUILD_TIMEOUT_SECONDS)


def _with_storage(command: str, *arguments: str) -> list[str]:
    storage = cache_folder() / "buildah"
    storage.mkdir(parents=True, exist_ok=True)
    folders = (f"--root={storage / 'root'}", f"--runroot={storage / 'run'}")
    return ["buildah", command, *folders, "--storage-driver=overlay", *arguments]


def _stage(image: Image, context: Path) -> str:
    """Fill the build context; the digest is over all that the image is made of."""
    for place, source in image.files.items():
        if source.is_dir():
            shutil.copytree(source, context / place, ignore=_IGNORED)
        elif source.exists():
            _link_or_copy(source, context / place)
    content = hashlib.sha256(image.containerfile.read_bytes())
    if image.prepare is not None:
        output([sys.executable, image.prepare, context], timeout_seconds=BUILD_TIMEOUT_SECONDS)
    for parent in image.parents.values():
        content.update(digest(parent).encode())
    content.update(repr(sorted(image.arguments.items())).encode())
    for file in _files(context):
        with file.open("rb") as handle:
            fingerprint = hashlib.file_digest(handle, "sha256").hexdigest()
        content.update(f"{file.relative_to(context)} {file.stat().st_mode:o} {fingerprint}\n".encode())
    return content.hexdigest()[:16]


def digest(image: Image) -> str:
    """The name of the image's content."""
    with tempfile.TemporaryDirectory(prefix="tailbound-image-") as folder:
        return _stage(image, Path(folder))


def _files(folder: Path) -> Iterator[Path]:
    return (file for file in sorted(folder.rglob("*")) if file.is_file())


def _link_or_copy(source: Path, target: Path) -> None:
    """Large files are not copied where a second name will do."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
