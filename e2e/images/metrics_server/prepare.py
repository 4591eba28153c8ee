"""Adds the program to the build context of this image: `python prepare.py FOLDER`."""

import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))
from e2e.cluster import binaries  # noqa: E402 - the repository is no installed package

if __name__ == "__main__":
    shutil.copy(binaries.program("metrics-server"), Path(sys.argv[1]))
