"""The packages of the engines beside ONNX Runtime, for their tests.

They are installed once, into a folder of the cache, without what the environment of the tests has already;
`python -m tests.runtime.engine_packages` does that ahead.
"""

import fcntl
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from e2e.cluster.binaries import cache_folder

PACKAGES: Final = ("openvino==2026.4.1",)


def folder() -> Path:
    """The folder with these packages, which is made if need be."""
    found = cache_folder() / "engines"
    found.mkdir(parents=True, exist_ok=True)
    installed = found / "installed"
    with (found / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not installed.exists() or installed.read_text() != "\n".join(PACKAGES):
            pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
            how = ("--no-deps", "--upgrade", "--target", str(found / "packages"), *PACKAGES)
            subprocess.run([*pip, *how], check=True)
            installed.write_text("\n".join(PACKAGES))
    return found / "packages"


def path() -> dict[str, str]:
    """The environment of a process that finds them."""
    return {"PYTHONPATH": os.pathsep.join([str(folder()), *sys.path])}


if __name__ == "__main__":
    sys.stdout.write(f"{folder()}\n")
