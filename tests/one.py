"""`make test T=NAME`: the tests and scenarios of one name, and what they need to be built first.

NAME is a file, a pytest id, or what pytest takes after -k. The exit status is not 0 if nothing has this name.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

SCENARIOS: Final = "e2e/scenarios"
HARNESS: Final = "e2e/cluster"
NEEDED: Final = {
    "tests/integration": ("binaries", "servers"),
    HARNESS: ("binaries", "images"),
    SCENARIOS: ("cluster-up",),
}
"""Targets of the Makefile, by the folder whose tests need them."""


def selection(name: str) -> list[str]:
    """Arguments of pytest that select this name."""
    if Path(name.split("::", maxsplit=1)[0]).exists():
        return [name]
    return ["tests", HARNESS, SCENARIOS, "-k", name]


def found(name: str) -> list[str]:
    """Ids of the tests that have this name."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "--color=no", *selection(name)]
    listed = subprocess.run(command, check=False, capture_output=True, text=True)
    if listed.returncode not in (0, 5):
        sys.stderr.write(listed.stdout + listed.stderr)
    return [
        line for line in listed.stdout.splitlines() if line.startswith(("tests/", "e2e/")) and "::" in line
    ]


def targets(tests: Sequence[str]) -> list[str]:
    """What has to be made before these tests can run."""
    return [
        target
        for folder, each in NEEDED.items()
        if any(test.startswith(f"{folder}/") for test in tests)
        for target in each
    ]


def main(name: str) -> int:
    """Exit status of make or pytest, whichever failed first."""
    tests = found(name)
    if not tests:
        sys.stderr.write(
            f"no test matches T={name}: give a file, an id, or a part of a name "
            "(python -m pytest --collect-only -q tests e2e lists all)\n"
        )
        return 1
    for target in targets(tests):
        made = subprocess.run(["make", "--no-print-directory", target], check=False).returncode
        if made:
            return made
    return subprocess.run([sys.executable, "-m", "pytest", *tests], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
