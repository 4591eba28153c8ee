"""`python -m e2e.scenarios [PYTEST OPTIONS]`: every scenario, side by side where they can.

Those that disturb the others follow, beside each other as far as parts.py allows. The exit status is 0 only
if both parts passed.
"""

import subprocess
import sys
from pathlib import Path
from typing import Final

# Most of a scenario is waiting, above all in the longest, which begin together.
WORKERS: Final = 6
# More have to wait for one another: most of them disturb the operator.
DISTURBING: Final = 2
SIDE_BY_SIDE: Final = "not disturbs and not heavy"
# Nothing collected: a selection by the caller may leave one part empty.
NOTHING_COLLECTED: Final = 5
SLOWEST: Final = "--durations=20"


def _workers(count: int) -> tuple[str, ...]:
    return ("-n", str(count), "--dist", "load", "--maxschedchunk", "1")


PARTS: Final = (
    ("side by side", ["-m", SIDE_BY_SIDE, *_workers(WORKERS), SLOWEST]),
    ("that disturb", ["-m", "disturbs", *_workers(DISTURBING), SLOWEST]),
)


def main(arguments: list[str]) -> int:
    """Run both parts, the second also after a failure of the first."""
    codes = []
    for title, options in PARTS:
        sys.stdout.write(f"\nscenarios {title}\n")
        sys.stdout.flush()
        command = [sys.executable, "-m", "pytest", str(Path(__file__).parent), *options, *arguments]
        codes.append(subprocess.run(command, check=False).returncode)
    wrong = [code for code in codes if code not in (0, NOTHING_COLLECTED)]
    return wrong[0] if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
