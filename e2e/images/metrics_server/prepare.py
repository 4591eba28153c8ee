"""Adds the program to the build context of this image: `python prepare.py FOLDER`."""

import shutil
import sys
from pathlib import Path

# The repository is no installed package.
sys.path.insert(0, str(Path(__file__).parents[3]))
from e2e.cluster import binaries

if __name__ == "__main__":
    # They share nearly all packages, which Go compiles once if it has not got to build both at the same time.
    binaries.ensure("kubernetes")
    shutil.copy(binaries.program("metrics-server"), Path(sys.argv[1]))
