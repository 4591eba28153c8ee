"""A Debian with Python, made from packages: the base of the images in tests, which need no image registry."""

import hashlib
import os
from pathlib import Path

from e2e.cluster.binaries import cache_folder, file_lock
from e2e.cluster.processes import output
from e2e.cluster.progress import announced

SUITE = "bookworm"
PACKAGES = ("python3", "python3-venv", "ca-certificates")
_EXCLUDED = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")
BUILD_TIMEOUT_SECONDS = 1200


def arguments() -> list[str]:
    """What mmdebstrap is told, save the file to write."""
    return [
        "--mode=root",
        "--variant=minbase",
        f"--include={','.join(PACKAGES)}",
        "--aptopt=Acquire::Languages none",
        *(f"--dpkgopt=path-exclude={pattern}" for pattern in _EXCLUDED),
        # Package lists would only make the image larger.
        "--customize-hook=rm -rf $1/var/lib/apt/lists/* $1/var/cache/apt/*.bin $1/var/log/*",
        SUITE,
    ]


def ensure() -> Path:
    """The root file system as a tar archive, made unless these arguments were used here before."""
    digest = hashlib.sha256("\0".join(arguments()).encode()).hexdigest()[:16]
    target = cache_folder() / "images" / f"rootfs-{digest}.tar"
    with file_lock(target.with_suffix(".lock")):
        if not target.exists():
            staging = target.with_name(f".{target.name}.{os.getpid()}.tar")
            try:
                with announced("base of the images", cache_folder()):
                    output(["mmdebstrap", *arguments(), staging], timeout_seconds=BUILD_TIMEOUT_SECONDS)
                staging.rename(target)
            finally:
                staging.unlink(missing_ok=True)
    return target
