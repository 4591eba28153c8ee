"""Adds the list of packages to the build context of this image: `python prepare.py FOLDER`."""

import shutil
import sys
from pathlib import Path

PACKAGES = Path(__file__).parents[3] / "tests/integration/servers/constraints/mlserver.txt"

if __name__ == "__main__":
    shutil.copy(PACKAGES, Path(sys.argv[1]) / "packages.txt")
