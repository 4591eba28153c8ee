"""Adds the list of packages to the build context of this image: `python prepare.py FOLDER`.

NumPy is left out: Debian's PyTorch is made for Debian's.
"""

import sys
from pathlib import Path

PACKAGES = Path(__file__).parents[4] / "tests/integration/servers/constraints/torchserve.txt"

if __name__ == "__main__":
    lines = PACKAGES.read_text().splitlines()
    kept = [line for line in lines if not line.startswith("numpy==")]
    (Path(sys.argv[1]) / "packages.txt").write_text("\n".join(kept) + "\n")
